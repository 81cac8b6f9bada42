"""Where in a segment's file an offset is: a sparse map from offset to position (`.index`).

An entry is eight bytes, big-endian: the offset relative to the segment's base offset, and the position in
the file. It says: the batch that begins at `position` ends with `offset`. There is one for the first batch
after every index.interval.bytes of log.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from sparklog.storage.mapped_index import MappedIndex
from sparklog.types import Offset


class OffsetPosition(NamedTuple):
    """The position of the batch whose last offset is `last_offset`."""

    last_offset: Offset
    position: int


class OffsetIndex(MappedIndex):
    """The offset index of one segment."""

    ENTRY: ClassVar[Struct] = Struct(">ii")

    def __init__(
        self, path: Path, base_offset: Offset, entry_count: int = 0, capacity_bytes: int = 0
    ) -> None:
        super().__init__(path, base_offset, entry_count, capacity_bytes)
        self._last: OffsetPosition | None = None

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another entry."""
        return self.entry_count >= self.max_entries

    def append(self, last_offset: Offset, position: int) -> None:
        """Add an entry above the last one.

        Raises:
            OSError: it could not be written; the index is as before.
        """
        self._write_entry(self.ENTRY.pack(last_offset - self.base_offset, position))
        self._last = None

    def replace(self, entries: Sequence[OffsetPosition]) -> None:
        """Have these entries and no others.

        Raises:
            OSError: they could not be written.
        """
        pack = self.ENTRY.pack
        content = b"".join(pack(entry.last_offset - self.base_offset, entry.position) for entry in entries)
        self._replace_entries(content)

    def last_entry(self) -> OffsetPosition | None:
        """Return the entry with the largest offset."""
        if self._last is None and self.entry_count:
            with self._lock:
                if self.entry_count:
                    self._last = self._entry(self.entry_count - 1)
        return self._last

    def lookup(self, offset: Offset) -> OffsetPosition | None:
        """Return the last entry at or below `offset`, to scan from; None to scan from the start."""
        with self._lock:
            if not self.entry_count:
                return None
            mapped = self._mapping()
            relative = offset - self.base_offset
            unpack_from = self.ENTRY.unpack_from
            slot = bisect_right(
                range(self.entry_count), relative, key=lambda n: unpack_from(mapped, n * 8)[0]
            )
            return self._entry(slot - 1) if slot else None

    def last_at_or_below(self, position: int) -> OffsetPosition | None:
        """Return the entry of the last indexed batch that begins at or below `position`."""
        with self._lock:
            if not self.entry_count:
                return None
            mapped = self._mapping()
            unpack_from = self.ENTRY.unpack_from
            slot = bisect_right(
                range(self.entry_count), position, key=lambda n: unpack_from(mapped, n * 8)[1]
            )
            return self._entry(slot - 1) if slot else None

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        with self._lock:
            if not self.entry_count:
                return
            mapped = self._mapping()
            unpack_from = self.ENTRY.unpack_from
            slot = bisect_left(
                range(self.entry_count),
                offset - self.base_offset,
                key=lambda n: unpack_from(mapped, n * 8)[0],
            )
            self._truncate_to_entries(slot)

    def _forget_last(self) -> None:
        self._last = None

    def _entry(self, slot: int) -> OffsetPosition:
        relative, position = self.ENTRY.unpack_from(self._mapping(), slot * 8)
        return OffsetPosition(self.base_offset + relative, position)


def sound_entries(content: bytes, log_size_bytes: int) -> int:
    """Return how many leading entries of an offset index can be right for a log of `log_size_bytes`.

    Offsets and positions must rise strictly and positions lie inside the file; the zeros of an index that
    was not trimmed end them.
    """
    count, last_offset, last_position = 0, -1, 0
    for relative_offset, position in OffsetIndex.ENTRY.iter_unpack(content[: len(content) // 8 * 8]):
        if not (relative_offset > last_offset and last_position < position < log_size_bytes):
            break
        count, last_offset, last_position = count + 1, relative_offset, position
    return count
