"""From when on to look in a segment for a timestamp: a sparse map from time to offset (`.timeindex`).

An entry is twelve bytes, big-endian: a timestamp in ms and an offset relative to the segment's base
offset. It says: no record up to the end of the batch that ends with `offset` is later than `timestamp`,
and that batch holds it. Timestamps and offsets rise. When a segment is rolled or closed its largest
timestamp is the last entry.
"""

from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from sparklog.storage.mapped_index import MappedIndex
from sparklog.types import Offset, TimestampMs


class TimestampOffset(NamedTuple):
    """A largest timestamp so far, and the last offset of the batch that has it."""

    timestamp_ms: TimestampMs
    offset: Offset


class TimeIndex(MappedIndex):
    """The time index of one segment."""

    ENTRY: ClassVar[Struct] = Struct(">qi")

    def __init__(
        self, path: Path, base_offset: Offset, entry_count: int = 0, capacity_bytes: int = 0
    ) -> None:
        super().__init__(path, base_offset, entry_count, capacity_bytes)
        self._last: TimestampOffset | None = None

    @property
    def is_full(self) -> bool:
        """Whether only the slot is left that is reserved for the entry made when the segment is rolled."""
        return self.entry_count >= self.max_entries - 1

    def maybe_append(self, timestamp_ms: TimestampMs, offset: Offset) -> None:
        """Add an entry if `timestamp_ms` is later than the last one.

        Raises:
            OSError: it could not be written; the index is as before.
        """
        last = self.last_entry()
        if (last is None and timestamp_ms >= 0) or (last is not None and timestamp_ms > last.timestamp_ms):
            self._write_entry(self.ENTRY.pack(timestamp_ms, offset - self.base_offset))
            self._last = TimestampOffset(timestamp_ms, offset)

    def last_entry(self) -> TimestampOffset | None:
        """Return the entry with the largest timestamp."""
        if self._last is None and self.entry_count:
            with self._lock:
                if self.entry_count:
                    self._last = self._entry(self.entry_count - 1)
        return self._last

    def lookup(self, timestamp_ms: TimestampMs) -> TimestampOffset | None:
        """Return the last entry earlier than `timestamp_ms`: up to its offset no record is later than that.

        None: there is no such entry.
        """
        with self._lock:
            if not self.entry_count:
                return None
            mapped = self._mapping()
            unpack_from = self.ENTRY.unpack_from
            # The batch that holds an entry's timestamp ends at its offset: only a strictly later time may
            # begin to look there.
            slot = bisect_left(
                range(self.entry_count), timestamp_ms, key=lambda n: unpack_from(mapped, n * 12)[0]
            )
            return self._entry(slot - 1) if slot else None

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries whose offset is `offset` or above."""
        with self._lock:
            if not self.entry_count:
                return
            mapped = self._mapping()
            unpack_from = self.ENTRY.unpack_from
            slot = bisect_right(
                range(self.entry_count),
                offset - self.base_offset - 1,
                key=lambda n: unpack_from(mapped, n * 12)[1],
            )
            self._truncate_to_entries(slot)

    def _forget_last(self) -> None:
        self._last = None

    def _entry(self, slot: int) -> TimestampOffset:
        timestamp_ms, relative = self.ENTRY.unpack_from(self._mapping(), slot * 12)
        return TimestampOffset(timestamp_ms, self.base_offset + relative)


def sound_entries(content: bytes) -> int:
    """Return how many leading entries of a time index can be right: timestamps and offsets must rise."""
    count, last_timestamp_ms, last_offset = 0, -1, 0
    for timestamp_ms, relative_offset in TimeIndex.ENTRY.iter_unpack(content[: len(content) // 12 * 12]):
        # An index that was not trimmed ends in zeros.
        zeros = timestamp_ms == 0 and relative_offset == 0
        if zeros or not (timestamp_ms > last_timestamp_ms and relative_offset >= last_offset):
            break
        count, last_timestamp_ms, last_offset = count + 1, timestamp_ms, relative_offset
    return count
