"""The time index: a sparse map from timestamp to offset in a segment (`.timeindex`).

An entry is twelve bytes, big-endian: a timestamp in ms and an offset relative to the segment's base offset.
No record up to the end of the batch that ends with `offset` is later than `timestamp`, and that batch has it.
Timestamps and offsets rise. When a segment is rolled or closed its largest timestamp is the last entry.
"""

from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from sparklog.node.storage.index.index_file import IndexFile
from sparklog.protocol.types import Offset, TimestampMs


class TimestampOffset(NamedTuple):
    """A largest timestamp so far, and the last offset of its batch."""

    timestamp_ms: TimestampMs
    offset: Offset


class TimeIndex(IndexFile):
    ENTRY: ClassVar[Struct] = Struct(">qi")

    def __init__(self, directory: Path, base_offset: Offset, suffix: str) -> None:
        super().__init__(directory, base_offset, suffix)
        self._last: TimestampOffset | None = None

    def maybe_append(self, timestamp_ms: TimestampMs, offset: Offset) -> None:
        """Add an entry, in memory until `write`, if `timestamp_ms` is later than the last one.

        Raises:
            OSError: the last one cannot be read.
        """
        last = self.last_entry()
        if (last is None and timestamp_ms >= 0) or (last is not None and timestamp_ms > last.timestamp_ms):
            self._add_entry(self.ENTRY.pack(timestamp_ms, offset - self.base_offset))
            self._last = TimestampOffset(timestamp_ms, offset)

    def last_entry(self) -> TimestampOffset | None:
        if self._last is None and self.entry_count:
            self._last = self._absolute(self._fields(self.entry_count - 1))
        return self._last

    def lookup(self, timestamp_ms: TimestampMs) -> TimestampOffset | None:
        """Return the last entry earlier than `timestamp_ms`: no record up to its offset is later than it.

        Raises:
            SegmentReleasedError, OSError: as `IndexFile` raises them.
        """
        # The batch with an entry's timestamp ends at its offset: only a strictly later time may begin there.
        _, last = self._leading(lambda entry: entry[0] < timestamp_ms, cached_only=False)
        return None if last is None else self._absolute(last)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at `offset` or above."""
        relative = offset - self.base_offset
        kept, _ = self._leading(lambda entry: entry[1] < relative, cached_only=False)
        self.truncate_to_entries(kept)

    def _forget_last(self) -> None:
        self._last = None

    def _absolute(self, fields: tuple[int, ...]) -> TimestampOffset:
        timestamp_ms, relative = fields
        return TimestampOffset(timestamp_ms, self.base_offset + relative)


def sound_entries(content: bytes) -> int:
    """Return how many leading entries of a time index can be valid: timestamps and offsets must rise."""
    count, last_timestamp_ms, last_offset = 0, -1, 0
    for timestamp_ms, relative_offset in TimeIndex.ENTRY.iter_unpack(content[: len(content) // 12 * 12]):
        # An untrimmed index ends in zeros.
        zeros = timestamp_ms == 0 and relative_offset == 0
        if zeros or not (timestamp_ms > last_timestamp_ms and relative_offset >= last_offset):
            break
        count, last_timestamp_ms, last_offset = count + 1, timestamp_ms, relative_offset
    return count
