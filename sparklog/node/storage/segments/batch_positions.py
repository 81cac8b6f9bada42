"""Cache of the file positions of batches, for readers near the log's end or that continue where they stopped.

Rule kept: a noted position is true of the file as it was when the reader obtained this object. A truncation
gives the segment a new object afterwards, so a reader in another thread that found its position before the
cut notes it in the discarded one.
"""

from typing import Final

from sparklog.protocol.types import Offset

_A_GENERATION: Final = 128


class BatchPositions:
    """Positions by offset, in two generations, so that eviction costs nothing."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[Offset, int] = {}
        self._older: dict[Offset, int] = {}

    def get(self, offset: Offset) -> int | None:
        """Return the position of the first batch that ends at or after `offset`, if known."""
        position = self._newer.get(offset)
        return self._older.get(offset) if position is None else position

    def note(self, offset: Offset, position: int) -> None:
        """Note that the first batch that ends at or after `offset` begins at `position`."""
        newer = self._newer
        if len(newer) >= _A_GENERATION:
            self._older = newer
            self._newer = newer = {}
        newer[offset] = position

    def forget_older(self) -> None:
        """Halve the cache of a segment that has been sealed."""
        self._older = {}
