"""Why a controller ends by itself."""


class DeposedError(Exception):
    """Another driver leads the cluster; this one can change nothing any more."""


class StaleDirectoriesError(Exception):
    """The brokers' directories contradict the object store or the start; the message gives the remedy."""
