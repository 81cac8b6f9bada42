"""Where in a segment's file batches begin, for readers that follow the end or read on from where they were.

Rule kept: what is noted is true of the file as it was when the reader got hold of these positions. Whoever
cuts the file gives the segment new ones afterwards, so that a reader in another thread, which found its place
before the cut, notes it where nobody looks any more.
"""

from typing import Final

from sparklog.types import Offset

_A_GENERATION: Final = 128


class BatchPositions:
    """Positions by offset, in two generations, so that forgetting costs nothing."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[Offset, int] = {}
        self._older: dict[Offset, int] = {}

    def get(self, offset: Offset) -> int | None:
        """Return where the first batch begins that ends at or after `offset`, if that is known."""
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
        """Keep less of a segment that is appended to no more."""
        self._older = {}
