"""Decoding of record batches to Arrow columns, without a Python object per record.

The columns are those of Spark's Kafka source, with its types and meanings. Several batches are decoded at a
time: uncompressed ones in the fetched bytes, compressed ones side by side in a separate buffer. `fields`
locates the records' fields, `columns` builds the requested columns.

A caller continues at `batch.next_fetch_offset(buffer, ...)`: control batches and offsets lost to compaction
yield no rows.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    iterate_headers,
)
from sparklog.protocol.records.codecs import DEFAULT_DECOMPRESSED_LIMIT_BYTES, Codec, decompress
from sparklog.protocol.records.columns import (
    COLUMN_TYPES,
    LocatedRecords,
    build_column,
    saturated_timestamp_column,
    value_view_column,
)
from sparklog.protocol.records.fields import locate_fields, record_starts
from sparklog.protocol.records.varint_columns import Int64s
from sparklog.protocol.records.varints import MalformedRecordsError
from sparklog.protocol.types import Offset, TopicPartition

_OFFSETS_END: Final = 2**63 - 1
DEFAULT_ROWS: Final = 32 * 1024
DEFAULT_BYTES: Final = 8 * 1024 * 1024


class OpenedBatch(NamedTuple):
    """A batch whose records are uncompressed in payload[position:end], at `starts`."""

    header: BatchHeader
    payload: bytes | memoryview
    position: int
    end: int
    starts: Int64s


def open_batch(
    buffer: bytes | memoryview,
    position: int,
    header: BatchHeader,
    limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
) -> OpenedBatch:
    """Return the batch at `position` of `buffer`, decompressed if need be.

    Raises:
        CorruptBatchError: the records do not fill the batch.
        KafkaError: as `decompress` raises it.
    """
    payload: bytes | memoryview = buffer
    start, end = position + HEADER_BYTES, position + header.size_bytes
    codec = header.codec
    if codec is not Codec.NONE:
        payload = decompress(codec, memoryview(buffer)[start:end], limit_bytes)
        start, end = 0, len(payload)
    try:
        starts = record_starts(payload, start, end, header.record_count)
    except MalformedRecordsError as error:
        raise CorruptBatchError(str(error)) from error
    return OpenedBatch(header, payload, start, end, starts)


def decode_batches(
    buffer: bytes | memoryview,
    *,
    columns: Sequence[str],
    topic: str,
    partition: int,
    start_offset: Offset = 0,
    end_offset: Offset | None = None,
    check_crcs: bool = True,
    saturate_timestamps: bool = False,
    view_values: bool = False,
    max_rows: int = DEFAULT_ROWS,
    max_bytes: int = DEFAULT_BYTES,
    decompressed_limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of [start_offset, end_offset) in `buffer`, with `columns` in the requested order.

    `buffer` holds batches in offset order and may end in a partial one, which is ignored. Control batches are
    skipped. A RecordBatch has at most `max_rows` rows, and about `max_bytes` bytes unless one batch has more,
    decompressed; one batch must not exceed `decompressed_limit_bytes`. Headers are null if a record has none,
    as in Spark. Without columns the RecordBatches only count. With `saturate_timestamps`, those that a column
    cannot hold are at the ends of its range. With `view_values` the column `value` is of views: long values
    are not copied, and the RecordBatch keeps the bytes of their batches.

    Raises:
        ValueError: a column is not in COLUMN_TYPES.
        CorruptBatchError: a CRC, a length or a count is wrong; the message has topic, partition and offset.
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE, UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_TIMESTAMP (it
            exceeds 64 bits of microseconds), or INVALID_RECORD for a batch beyond the decompression limit.
    """
    for name in columns:
        if name not in COLUMN_TYPES:
            raise ValueError(
                f"{name!r} is not a column of records; the columns are {', '.join(COLUMN_TYPES)}"
            )
    request = _Request(
        tuple(columns),
        TopicPartition(topic, partition),
        start_offset,
        end_offset,
        max_rows,
        saturate_timestamps,
        view_values,
    )
    group: list[OpenedBatch] = []
    rows = size_bytes = 0
    for position, header in _headers_of(buffer, request):
        if not _is_wanted(header, start_offset):
            continue
        try:
            if check_crcs:
                check_crc(buffer, position, header)
            batch = open_batch(buffer, position, header, decompressed_limit_bytes)
        except KafkaError as error:
            yield from _decode_group(group, request)
            raise _located(error, request, header) from error
        if group and (
            rows + header.record_count > max_rows
            or size_bytes + batch.end - batch.position > max_bytes
            or (batch.payload is buffer) is not (group[0].payload is buffer)
        ):
            yield from _decode_group(group, request)
            group, rows, size_bytes = [], 0, 0
        group.append(batch)
        rows += header.record_count
        size_bytes = batch.end - group[0].position if batch.payload is buffer else size_bytes + batch.end
    yield from _decode_group(group, request)


class _Request(NamedTuple):
    columns: tuple[str, ...]
    topic_partition: TopicPartition
    start_offset: Offset
    end_offset: Offset | None
    max_rows: int
    saturate_timestamps: bool
    view_values: bool

    def column(self, name: str, records: LocatedRecords) -> pa.Array:
        if name == "value" and self.view_values:
            return value_view_column(records)
        if name == "timestamp" and self.saturate_timestamps:
            return saturated_timestamp_column(records)
        return build_column(name, records, self.topic_partition)


def _headers_of(buffer: bytes | memoryview, request: _Request) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the headers below the end offset; raise if they are not in offset order."""
    last: BatchHeader | None = None
    try:
        for position, header in iterate_headers(buffer):
            if request.end_offset is not None and header.base_offset >= request.end_offset:
                return
            if last is not None and header.base_offset < last.next_offset:
                raise CorruptBatchError(f"the next batch has offset {header.base_offset}, which goes back")
            if not 0 <= header.base_offset <= header.last_offset < _OFFSETS_END:
                raise CorruptBatchError(f"a batch has offsets {header.base_offset} to {header.last_offset}")
            yield position, header
            last = header
    except KafkaError as error:
        raise _located(error, request, last, after=True) from error


def _is_wanted(header: BatchHeader, start_offset: Offset) -> bool:
    """Whether a reader from `start_offset` on gets records of this batch."""
    return header.next_offset > start_offset and header.record_count != 0 and not header.is_control


def _located(
    error: KafkaError, request: _Request, header: BatchHeader | None, *, after: bool = False
) -> KafkaError:
    """Return `error` with topic, partition and offset in its message."""
    where = f"{request.topic_partition}"
    if header is not None:
        where += f", {'after the ' if after else ''}batch at offset {header.base_offset}"
    message = f"{where}: {error.message}"
    if error.error_code is ErrorCode.corrupt_message:
        return CorruptBatchError(message)
    return KafkaError(error.error_code, message)


def _decode_group(group: Sequence[OpenedBatch], request: _Request) -> Iterator[pa.RecordBatch]:
    """Yield the group's records as RecordBatches of at most `max_rows` rows."""
    if not group:
        return
    try:
        table = _decode_at_once(group, request)
    except (KafkaError, MalformedRecordsError) as error:
        if len(group) > 1:  # give what is good, and find the batch that is not
            for batch in group:
                yield from _decode_group([batch], request)
            return
        reason = error if isinstance(error, KafkaError) else CorruptBatchError(str(error))
        raise _located(reason, request, group[0].header) from error
    for first in range(0, table.num_rows, request.max_rows):
        yield table.slice(first, request.max_rows)


def _decode_at_once(group: Sequence[OpenedBatch], request: _Request) -> pa.RecordBatch:
    records = locate_records(group)
    start, end = 0, len(records.offsets)
    if group[0].header.base_offset < request.start_offset:
        start = int(np.searchsorted(records.offsets, request.start_offset))
    if request.end_offset is not None and group[-1].header.next_offset > request.end_offset:
        end = int(np.searchsorted(records.offsets, request.end_offset))
    if (start, end) != (0, len(records.offsets)):
        records = records.slice(start, max(start, end))
    if not request.columns:
        nothing = pa.StructArray.from_buffers(pa.struct([]), len(records.offsets), [None])
        return pa.RecordBatch.from_struct_array(nothing)
    arrays = [request.column(name, records) for name in request.columns]
    return pa.RecordBatch.from_arrays(arrays, names=request.columns)


def locate_records(group: Sequence[OpenedBatch]) -> LocatedRecords:
    """Return the records of consecutive batches, all in one buffer or all decompressed.

    Raises:
        MalformedRecordsError: records do not fill their batch, or their offsets are not in order.
    """
    counts = np.array([batch.header.record_count for batch in group])
    starts = np.concatenate([batch.starts for batch in group])
    if group[0].payload is group[-1].payload:
        data = np.frombuffer(group[0].payload, dtype=np.uint8)[group[0].position : group[-1].end]
        starts -= group[0].position
    else:
        data = np.frombuffer(b"".join([batch.payload for batch in group]), dtype=np.uint8)
        ends = np.cumsum([len(batch.payload) for batch in group])
        starts[counts[0] :] += np.repeat(ends[:-1], counts[1:])
    fields = locate_fields(data, starts)
    headers = [batch.header for batch in group]
    batch_of_record = np.repeat(np.arange(len(group)), counts)
    base_offsets = np.array([header.base_offset for header in headers], dtype=np.int64)
    last_deltas = np.array([header.last_offset_delta for header in headers])
    deltas = fields.offset_deltas
    last_rows = np.cumsum(counts) - 1
    rising = deltas[1:] > deltas[:-1]
    rising[last_rows[:-1]] = True  # from one batch to the next
    if (
        not rising.all()
        or deltas[last_rows - counts + 1].min() < 0
        or (deltas[last_rows] > last_deltas).any()
    ):
        raise MalformedRecordsError("offsets do not rise from record to record, or leave their batch")
    offsets = base_offsets[batch_of_record] + deltas
    return LocatedRecords(data, headers, batch_of_record, starts, fields, offsets)
