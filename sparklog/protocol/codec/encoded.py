"""Parts of responses that are bytes already: file regions, response frames and bodies."""

from typing import NamedTuple, Protocol


class Transferable(Protocol):
    """Bytes of a file that may stand in a response wherever the schema has `records`; they leave by sendfile.

    The file must stay open for as long as the object is referenced.
    """

    position: int
    """Where in the file the region starts, in bytes."""
    length: int
    """How many bytes the region has."""

    def __len__(self) -> int: ...

    def fileno(self) -> int:
        """Return the descriptor of the open file."""

    def is_cached(self, start: int, length: int) -> bool:
        """Return whether `length` bytes from `start` on can be sent without waiting for the disk."""


class RawResponse(NamedTuple):
    """A response header and body, ready made, without the length in front (what an Envelope brought back)."""

    frame: bytes


class EncodedBody(NamedTuple):
    """A response body, ready made in the version that was asked; one for many, who share the bytes."""

    body: bytes
