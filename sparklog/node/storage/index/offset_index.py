"""The offset index: a sparse map from offset to position in the segment's file (`.index`).

An entry is eight bytes, big-endian: the offset relative to the segment's base offset, and the position in the
file: the batch that begins at `position` ends with `offset`. There is one for the first batch after every
index.interval.bytes of log.
"""

from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from sparklog.node.storage.index.index_file import IndexFile
from sparklog.protocol.types import Offset


class OffsetPosition(NamedTuple):
    """The position of the batch whose last offset is `last_offset`."""

    last_offset: Offset
    position: int


class OffsetIndex(IndexFile):
    ENTRY: ClassVar[Struct] = Struct(">ii")

    def __init__(self, directory: Path, base_offset: Offset, suffix: str) -> None:
        super().__init__(directory, base_offset, suffix)
        self._last: OffsetPosition | None = None

    def append(self, last_offset: Offset, position: int) -> None:
        """Add an entry above the last one, in memory until `write`."""
        self._add_entry(self.ENTRY.pack(last_offset - self.base_offset, position))
        self._last = None

    def replace(self, entries: Sequence[OffsetPosition], *, removals: int, entry_count: int) -> bool:
        """Replace all entries; return False if the index has changed since it had `entry_count`.

        Raises:
            OSError: they could not be written.
        """
        pack = self.ENTRY.pack
        content = b"".join(pack(entry.last_offset - self.base_offset, entry.position) for entry in entries)
        return self._replace_entries(content, removals, entry_count)

    def last_entry(self) -> OffsetPosition | None:
        if self._last is None and self.entry_count:
            self._last = self._absolute(self._fields(self.entry_count - 1))
        return self._last

    def lookup(self, offset: Offset, *, cached_only: bool = False) -> OffsetPosition | None:
        """Return the last entry at or below `offset`, from which to scan; None to scan from the start.

        Raises:
            NotCachedError, SegmentReleasedError, OSError: as `IndexFile` raises them.
        """
        relative = offset - self.base_offset
        _, last = self._leading(lambda entry: entry[0] <= relative, cached_only=cached_only)
        return None if last is None else self._absolute(last)

    def last_at_or_below(self, position: int, *, cached_only: bool = False) -> OffsetPosition | None:
        """Return the entry of the last indexed batch that begins at or below `position`."""
        _, last = self._leading(lambda entry: entry[1] <= position, cached_only=cached_only)
        return None if last is None else self._absolute(last)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        relative = offset - self.base_offset
        kept, _ = self._leading(lambda entry: entry[0] < relative, cached_only=False)
        self.truncate_to_entries(kept)

    def _forget_last(self) -> None:
        self._last = None

    def _absolute(self, fields: tuple[int, ...]) -> OffsetPosition:
        relative, position = fields
        return OffsetPosition(self.base_offset + relative, position)


INDEXED_AT_ONCE: Final = 32 * OffsetIndex.ENTRY.size
"""Bytes of unwritten entries from which on a segment writes its indexes."""


def sound_entries(content: bytes, log_size_bytes: int) -> int:
    """Return how many leading entries of an offset index can be valid for a log of `log_size_bytes`.

    Offsets and positions must rise strictly, and positions lie inside the file; zeros of an untrimmed index
    end them.
    """
    count, last_offset, last_position = 0, -1, 0
    for relative_offset, position in OffsetIndex.ENTRY.iter_unpack(content[: len(content) // 8 * 8]):
        if not (relative_offset > last_offset and last_position < position < log_size_bytes):
            break
        count, last_offset, last_position = count + 1, relative_offset, position
    return count
