"""A row group as record batches again, for consumers.

The batches are uncompressed, have the records' offsets and timestamps, and no producer: everything in a
remote segment is committed. A batch has one leader epoch, by the manifest's epochs, and one timestamp type;
under LogAppendTime one timestamp, since that is in the header.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.segments.row_group_rows import row_group_rows
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.remote_log.segments.segment_format import US_PER_MS
from sparklog.protocol.records.batch import TIMESTAMP_TYPE_BIT, TimestampType, header_bytes
from sparklog.protocol.records.encode import encode_numbered
from sparklog.protocol.records.numpy_arrays import numbers_of
from sparklog.protocol.records.varint_columns import Int64s
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs

DEFAULT_BATCH_BYTES: Final = 1024 * 1024
_OFFSET_STRIDE_BITS: Final = 30
"""A batch does not cross a multiple of 2^30, so that its offset deltas fit 31 bits."""


class BatchPosition(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    """Inclusive."""
    position: int
    """Position of its first byte in the row group's batches."""
    max_timestamp_ms: TimestampMs


class EncodedBatches(NamedTuple):
    parts: tuple[bytes | memoryview, ...]
    """The batches one after the other, to be written without a copy: header, records, header, records..."""
    size_bytes: int
    positions: tuple[BatchPosition, ...]

    @property
    def data(self) -> bytes:
        """The parts in one piece: a copy."""
        return b"".join(self.parts)


def row_group_batches(
    data: bytes | memoryview,
    footer: SegmentFooter,
    index: int,
    *,
    start_offset: Offset,
    end_offset: Offset,
    leader_epochs: Sequence[EpochStart],
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
) -> Iterator[EncodedBatches]:
    """Yield the records of [start_offset, end_offset) in a row group, of whose bytes `data` is all.

    A batch has at most `max_batch_bytes`, unless one record alone has more. Blocks for some milliseconds a
    step. A step's batches are written before the next step, or memory is not bounded by a step.

    Raises:
        CorruptSegmentError: the bytes are not the row group's, or damaged.
    """
    position = 0
    for rows in row_group_rows(data, footer, index, start_offset=start_offset, end_offset=end_offset):
        encoded = _encode(rows, leader_epochs, max_batch_bytes, position)
        position += encoded.size_bytes
        yield encoded


def _encode(
    rows: pa.RecordBatch, leader_epochs: Sequence[EpochStart], max_batch_bytes: int, position: int
) -> EncodedBatches:
    """Return rows as batches, the first of which is at `position`."""
    offsets = numbers_of(rows.column("offset"))
    timestamps_ms = numbers_of(rows.column("timestamp")) // US_PER_MS
    append_time = numbers_of(rows.column("timestampType")) == TimestampType.LOG_APPEND_TIME
    batches = encode_numbered(
        offsets=offsets,
        timestamps_ms=timestamps_ms,
        key=rows.column("key"),
        value=rows.column("value"),
        headers=rows.column("headers"),
        batch_size_bytes=max_batch_bytes,
        begins=_begins(offsets, timestamps_ms, append_time, leader_epochs),
    )
    parts: list[bytes | memoryview] = []
    positions: list[BatchPosition] = []
    row, start = 0, position
    for header, payload in batches:
        stamped = header._replace(
            partition_leader_epoch=_epoch_at(header.base_offset, leader_epochs),
            attributes=TIMESTAMP_TYPE_BIT if append_time[row] else 0,
        )
        parts += (header_bytes(stamped, payload), payload)
        positions.append(
            BatchPosition(header.base_offset, header.last_offset, position, header.max_timestamp)
        )
        position += len(parts[-2]) + len(payload)
        row += header.record_count
    return EncodedBatches(tuple(parts), position - start, tuple(positions))


def _begins(
    offsets: Int64s,
    timestamps_ms: Int64s,
    append_time: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
    leader_epochs: Sequence[EpochStart],
) -> Int64s:
    """Return the rows that cannot be in one batch with the row before them."""
    apart = append_time[1:] != append_time[:-1]
    apart |= append_time[1:] & (timestamps_ms[1:] != timestamps_ms[:-1])
    strides = offsets >> _OFFSET_STRIDE_BITS
    apart |= strides[1:] != strides[:-1]
    epochs = offsets.searchsorted([each.start_offset for each in leader_epochs])
    begins: Int64s = np.union1d(np.flatnonzero(apart) + 1, epochs[(epochs > 0) & (epochs < len(offsets))])
    return begins


def _epoch_at(offset: Offset, leader_epochs: Sequence[EpochStart]) -> LeaderEpoch:
    """Return the leader epoch in which an offset was written; -1, as in a header, before all of them."""
    number = bisect_right(leader_epochs, offset, key=lambda each: each.start_offset)
    return leader_epochs[number - 1].leader_epoch if number else -1
