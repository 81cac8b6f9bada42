import sparklog  # noqa: F401 - before anything of kio
