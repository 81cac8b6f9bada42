"""Why a controller ends by itself."""


class DeposedError(Exception):
    """Another driver leads the cluster; this one can change nothing any more."""
