"""The errors of a table that are decided upon; all others mean that it is not known what has happened."""


class StaleTableError(Exception):
    """The table has another newest snapshot than the commit's parent, which may be the commit's own."""


class TableRefusedError(Exception):
    """The topic cannot have its table in this catalogue; the message says why, and what helps."""


class TableGoneError(Exception):
    """The table of a deleted topic is gone, or never was; the message says what was found."""


class CatalogSilentError(Exception):
    """The catalogue has not answered in time, and may still do what it was asked for."""


class CallGivenUpError(Exception):
    """Raised in the thread of a call that was given up."""
