"""The error of a decoder process."""


class DecodingFailedError(Exception):
    """A row group or a footer was not decoded, for a reason of this machine and not of the store."""
