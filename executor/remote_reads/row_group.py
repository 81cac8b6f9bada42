"""One row group of a remote segment: its batches in a memory file, and reads of them."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from sparklog.executor.remote_reads.memory_file import MemoryFile
from sparklog.node.storage.file_region import FileRegion
from sparklog.node.storage.results import ReadResult
from sparklog.node.storage.segments.time_lookup import OffsetAndTimestamp
from sparklog.protocol.records.batch import check_crc, read_header
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.records.gap import gap_batch
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs


class RowGroup:
    __slots__ = ("_last_offsets", "_max_timestamps", "_positions", "file")

    def __init__(
        self,
        file: MemoryFile,
        last_offsets: Sequence[Offset],
        positions: Sequence[int],
        max_timestamps: Sequence[TimestampMs],
    ) -> None:
        self.file: Final = file
        self._last_offsets = last_offsets
        """Last offset of each batch, inclusive."""
        self._positions = positions
        """Position of each batch in the file, and of the end."""
        self._max_timestamps = max_timestamps

    @property
    def end_offset(self) -> Offset:
        """The offset after the last batch; 0 without one."""
        return self._last_offsets[-1] + 1 if self._last_offsets else 0

    @property
    def size_bytes(self) -> int:
        return self.file.length

    def read(self, offset: Offset, *, max_bytes: int, min_one_batch: bool) -> ReadResult:
        """Return whole batches from the first one that ends at `offset` or later.

        At most `max_bytes`, unless `min_one_batch` and the first batch alone is larger. No region without
        room, or from `end_offset` on.
        """
        first = bisect_left(self._last_offsets, offset)
        if first == len(self._last_offsets):
            return ReadResult(None, offset)
        start = self._positions[first]
        end = bisect_right(self._positions, start + max_bytes) - 1
        if end <= first:
            if not min_one_batch:
                return ReadResult(None, offset)
            end = first + 1
        region = FileRegion(self.file, start, self._positions[end] - start)
        return ReadResult(region, self._last_offsets[end - 1] + 1)

    def first_at_or_after(self, timestamp_ms: TimestampMs, from_offset: Offset) -> OffsetAndTimestamp | None:
        """Return the first record from `from_offset` on that is not earlier than `timestamp_ms`. Blocks."""
        for number in range(bisect_left(self._last_offsets, from_offset), len(self._last_offsets)):
            if self._max_timestamps[number] >= timestamp_ms:
                for found in self._records(number, from_offset):
                    if found.timestamp_ms is not None and found.timestamp_ms >= timestamp_ms:
                        return found
        return None

    def latest(self, from_offset: Offset) -> OffsetAndTimestamp | None:
        """Return the first of the records from `from_offset` on with the largest timestamp. Blocks."""
        best: OffsetAndTimestamp | None = None
        largest = -1
        for number in range(bisect_left(self._last_offsets, from_offset), len(self._last_offsets)):
            if self._max_timestamps[number] > largest:
                for found in self._records(number, from_offset):
                    if found.timestamp_ms is not None and found.timestamp_ms > largest:
                        best, largest = found, found.timestamp_ms
        return best

    def _records(self, number: int, from_offset: Offset) -> Iterator[OffsetAndTimestamp]:
        position = self._positions[number]
        batch = os.pread(self.file.fileno(), self._positions[number + 1] - position, position)
        header = read_header(batch)
        check_crc(batch, 0, header)
        epoch = None if header.partition_leader_epoch < 0 else header.partition_leader_epoch
        for record in read_records(batch, header):
            if record.offset is not None and record.offset >= from_offset:
                yield OffsetAndTimestamp(record.offset, record.timestamp_ms, epoch)


def gap_region(start: Offset, end: Offset, leader_epoch: LeaderEpoch | None) -> FileRegion:
    """Return a batch without records that covers [start, end), as far as one can."""
    file = MemoryFile(f"offsets {start} to {end - 1}")
    file.append([gap_batch(start, end, leader_epoch)])
    return FileRegion(file, 0, file.length)
