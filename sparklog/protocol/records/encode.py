"""Encoding of Arrow columns to record batches, without a Python object per record.

A producer's records are numbered by their leader (`encode_batches`); those that are read back from a remote
segment have their offsets (`encode_numbered`).

Numpy computes the length of each record, divides the rows into batches, and writes the varints; Arrow joins
them with the keys and values (`binary_join_element_wise`). The joined column's bytes are the records of
several batches one after the other, so a batch's payload is a view of them, and only a compressed one is
copied.
"""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    header_bytes,
    sequence_after,
)
from sparklog.protocol.records.codecs import Codec, compress
from sparklog.protocol.records.numpy_arrays import int64s_of, nulls_of, scalar_of
from sparklog.protocol.records.varint_columns import Int64s, VarintColumn, pack_columns
from sparklog.protocol.types import ProducerEpoch, ProducerId, TimestampMs, or_minus_one, unless_minus_one

if TYPE_CHECKING:
    ArrowColumn: TypeAlias = Any
else:
    ArrowColumn = pa.Array | pa.ChunkedArray

_GROUP_BYTES: Final = 4 * 1024 * 1024
"""Bytes of batches that are built at a time: few calls, and memory that is soon reused."""
_LARGEST_BATCH_BYTES: Final = 2**31 - 1
_SMALLEST_RECORD_BYTES: Final = 7
_NO_ROWS: Final = np.empty(0, dtype=np.int64)
_NO_HEADERS: Final = scalar_of(b"\0")
"""A record's header count, 0."""
_NO_SEPARATOR: Final = scalar_of(b"")
_BLANK: Final = BatchHeader(
    base_offset=0,
    batch_length=0,
    partition_leader_epoch=-1,
    magic=MAGIC,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=0,
    max_timestamp=0,
    producer_id=NO_PRODUCER_ID,
    producer_epoch=-1,
    base_sequence=NO_SEQUENCE,
    record_count=0,
)
"""A header before anything in it is known: no producer, uncompressed."""


class EncodedBatch(NamedTuple):
    """A batch in two parts, for a gathering write: header and records."""

    header: bytes
    payload: bytes | memoryview
    record_count: int
    base_sequence: int | None

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.payload)

    @property
    def data(self) -> bytes:
        """Header and payload in one piece (a copy)."""
        return b"".join((self.header, self.payload))


class _Rows(NamedTuple):
    """Columns of rows; `tail` has the header count and the headers. Offsets rise; a producer's begin at 0."""

    key: ArrowColumn | None
    key_lengths: Int64s
    value: ArrowColumn | None
    value_lengths: Int64s
    tail: ArrowColumn | None
    tail_lengths: Int64s
    timestamps: Int64s
    offsets: Int64s

    def slice(self, start: int, end: int) -> "_Rows":
        return _Rows._make(None if column is None else column[start:end] for column in self)


def encode_batches(
    *,
    value: ArrowColumn | None,
    key: ArrowColumn | None = None,
    headers: ArrowColumn | None = None,
    timestamp: ArrowColumn | None = None,
    default_timestamp_ms: TimestampMs,
    batch_size_bytes: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: ProducerId | None = None,
    producer_epoch: ProducerEpoch | None = None,
    base_sequence: int | None = None,
    transactional: bool = False,
) -> Iterator[EncodedBatch]:
    """Yield batches of the columns' rows, in order, for one partition.

    `key` and `value` are binary or string, of any width; None means all null. `headers` are lists of structs
    of key and value. `timestamp` is a timestamp or an integer of ms; null and None mean
    `default_timestamp_ms`. A batch has at most `batch_size_bytes` before compression, unless one record alone
    has more, as with Kafka's batch.size. `base_sequence` is the first record's; each batch has its own, and
    the next call continues at `sequence_after(batch.base_sequence, batch.record_count)`.

    Raises:
        ValueError: the columns differ in length or have another type, or a header has no key.
        KafkaError: MESSAGE_TOO_LARGE for a record of 2 GiB or more.
    """
    fixed = _BLANK._replace(
        attributes=codec | (TRANSACTIONAL_BIT if transactional else 0),
        producer_id=or_minus_one(producer_id),
        producer_epoch=or_minus_one(producer_epoch),
        base_sequence=or_minus_one(base_sequence),
    )
    for rows in _rows_of(key, value, headers, timestamp, default_timestamp_ms):
        longest_delta = batch_size_bytes // _SMALLEST_RECORD_BYTES
        for start, end, bounds in _groups(rows, batch_size_bytes, longest_delta):
            for numbered, payload in _encode_group(rows.slice(start, end), bounds, fixed):
                header = numbered._replace(base_offset=0)
                compressed = payload if codec is Codec.NONE else compress(codec, payload, level)
                yield EncodedBatch(
                    header_bytes(header, compressed),
                    compressed,
                    header.record_count,
                    unless_minus_one(header.base_sequence),
                )
            if base_sequence is not None:
                fixed = fixed._replace(base_sequence=sequence_after(fixed.base_sequence, end - start))


def encode_numbered(
    *,
    offsets: Int64s,
    timestamps_ms: Int64s,
    key: ArrowColumn,
    value: ArrowColumn,
    headers: ArrowColumn,
    batch_size_bytes: int,
    begins: Int64s,
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield header and uncompressed payload of batches of rows that have their offsets, in order.

    Offsets rise and may have gaps; a batch's must be within 31 bits of each other. A batch begins at each row
    of `begins`, ascending and above 0, and where another would have more than `batch_size_bytes`, unless one
    record alone has more. The headers have no leader epoch and no attributes, which the caller adds before
    `header_bytes` gives the length and CRC.

    Raises:
        KafkaError: MESSAGE_TOO_LARGE for a record of 2 GiB or more.
    """
    columns = {"key": key, "value": value, "headers": headers}
    rows = _rows_of_piece(columns, len(offsets), NO_TIMESTAMP)._replace(
        timestamps=timestamps_ms, offsets=offsets
    )
    longest_delta = min(int(offsets[-1] - offsets[0]), _LARGEST_BATCH_BYTES) if len(offsets) else 0
    for start, end, bounds in _groups(rows, batch_size_bytes, longest_delta, begins):
        yield from _encode_group(rows.slice(start, end), bounds, _BLANK)


def _rows_of(
    key: ArrowColumn | None,
    value: ArrowColumn | None,
    headers: ArrowColumn | None,
    timestamp: ArrowColumn | None,
    default_timestamp_ms: TimestampMs,
) -> Iterator[_Rows]:
    """Yield the columns in pieces in which each column is one array."""
    given = {"key": key, "value": value, "headers": headers, "timestamp": timestamp}
    columns = {name: column for name, column in given.items() if column is not None}
    if not columns:
        raise ValueError("there is no column to encode")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns differ in length: {lengths}")
    table = pa.table(columns)
    if table.get_total_buffer_size() < _LARGEST_BATCH_BYTES:  # what one array of binary can hold
        table = table.combine_chunks()
    for piece in table.to_batches():
        if piece.num_rows:
            yield _rows_of_piece(
                {name: piece.column(name) for name in columns}, piece.num_rows, default_timestamp_ms
            )


def _rows_of_piece(columns: dict[str, ArrowColumn], count: int, default_timestamp_ms: TimestampMs) -> _Rows:
    key, key_lengths = _binary(columns.get("key"), "key", count)
    value, value_lengths = _binary(columns.get("value"), "value", count)
    tail = None
    tail_lengths = np.ones(count, dtype=np.int64)  # the header count 0
    if "headers" in columns:
        tail = _encode_headers(columns["headers"])
        tail_lengths = _lengths(tail)
    return _Rows(
        key,
        key_lengths,
        value,
        value_lengths,
        tail,
        tail_lengths,
        _timestamps_ms(columns.get("timestamp"), count, default_timestamp_ms),
        np.arange(count),
    )


def _binary(column: ArrowColumn | None, name: str, count: int) -> tuple[ArrowColumn | None, Int64s]:
    """Return the column as (large) binary, and its lengths; -1 for null, as in a record."""
    if column is None or pa.types.is_null(column.type):
        return None, np.full(count, -1, dtype=np.int64)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(kind) or kind == pa.string_view():
        column = column.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise ValueError(f"{name} is {kind}, which is neither binary nor string")
    return column, _lengths(column)


def _lengths(column: ArrowColumn) -> Int64s:
    """Return the lengths of a binary column; -1 for null."""
    offset_type = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    offsets = np.frombuffer(column.buffers()[1], dtype=offset_type)[
        column.offset : column.offset + len(column) + 1
    ]
    lengths: Int64s = np.diff(offsets).astype(np.int64, copy=False)
    if column.null_count:
        lengths[nulls_of(column)] = -1
    return lengths


def _timestamps_ms(column: ArrowColumn | None, count: int, default_timestamp_ms: TimestampMs) -> Int64s:
    if column is None or pa.types.is_null(column.type):
        return np.full(count, default_timestamp_ms, dtype=np.int64)
    if pa.types.is_timestamp(column.type):
        milliseconds = column.cast(pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64())
    elif pa.types.is_integer(column.type):
        milliseconds = column.cast(pa.int64())
    else:
        raise ValueError(f"timestamp is {column.type}, which is neither a timestamp nor an integer of ms")
    timestamps = int64s_of(milliseconds)
    if milliseconds.null_count:
        timestamps[nulls_of(milliseconds)] = default_timestamp_ms
    return timestamps


def _encode_headers(column: ArrowColumn) -> ArrowColumn:
    """Return the end of each record, header count and headers, as large binary."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not (
        pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2
    ):
        raise ValueError(f"headers are {kind}, not lists of structs of key and value")
    counts = int64s_of(pc.list_value_length(column))
    elements = column.flatten()
    header_keys, header_values = elements.flatten()  # a null struct's key is null
    key, key_lengths = _binary(header_keys, "a header's key", len(elements))
    value, value_lengths = _binary(header_values, "a header's value", len(elements))
    if len(elements) and key_lengths.min() < 0:
        raise ValueError("a header has no key")
    encoded = _join(
        [_packed([VarintColumn.of(key_lengths)]), key, _packed([VarintColumn.of(value_lengths)]), value]
    )
    first_elements = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=first_elements[1:])
    bounds = np.frombuffer(encoded.buffers()[1], dtype=np.int64)[first_elements]
    by_record = pa.Array.from_buffers(
        pa.large_binary(), len(counts), [None, pa.py_buffer(bounds), encoded.buffers()[2]]
    )
    return _join([_packed([VarintColumn.of(counts)]), by_record])


def _packed(columns: list[VarintColumn | int]) -> ArrowColumn:
    data, starts = pack_columns(columns)
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(data)]
    )


def _join(columns: list[ArrowColumn | None]) -> ArrowColumn:
    """Return one large binary column that joins the columns row by row; a null adds nothing."""
    present = [column for column in columns if column is not None]
    wide = [column.cast(pa.large_binary()) for column in present]
    return pc.binary_join_element_wise(*wide, _NO_SEPARATOR, null_handling="replace", null_replacement=b"")


def _groups(
    rows: _Rows, batch_size_bytes: int, longest_offset_delta: int, begins: Int64s = _NO_ROWS
) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (start, end, bounds): rows that form whole batches, and the first row of each batch.

    Bounds count from `start` and include `end`. Sizes assume the longest possible deltas, so a batch can only
    be smaller.
    """
    timestamps = rows.timestamps
    if not len(timestamps):
        return
    widest = np.array([int(timestamps.max() - timestamps.min()), longest_offset_delta])
    sizes = int(VarintColumn.of(widest).sizes.sum()) + 1 + _sizes_without_deltas(rows)
    sizes += VarintColumn.of(sizes).sizes
    if sizes.max() > _LARGEST_BATCH_BYTES - HEADER_BYTES:
        raise KafkaError(
            ErrorCode.message_too_large, f"a record of {sizes.max()} bytes is more than any batch can hold"
        )
    ends = np.cumsum(sizes)
    capacity = batch_size_bytes - HEADER_BYTES
    group_start = start = 0
    bounds = [0]
    stretch_ends = iter((*begins.tolist(), len(ends)))
    stretch_end = 0
    while start < len(ends):
        if start == stretch_end:
            stretch_end = next(stretch_ends)
        before = int(ends[start - 1]) if start else 0
        end = min(stretch_end, max(start + 1, int(ends.searchsorted(before + capacity, side="right"))))
        bounds.append(end - group_start)
        start = end
        if ends[end - 1] - (ends[group_start - 1] if group_start else 0) >= _GROUP_BYTES:
            yield group_start, end, bounds
            group_start, bounds = end, [0]
    if len(bounds) > 1:
        yield group_start, start, bounds


def _sizes_without_deltas(rows: _Rows) -> Int64s:
    sizes: Int64s = VarintColumn.of(rows.key_lengths).sizes + VarintColumn.of(rows.value_lengths).sizes
    sizes += np.maximum(rows.key_lengths, 0)
    sizes += np.maximum(rows.value_lengths, 0)
    sizes += rows.tail_lengths
    return sizes


def _encode_group(
    rows: _Rows, bounds: list[int], fixed: BatchHeader
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the header and the uncompressed payload of each batch of the group."""
    first_rows = np.array(bounds[:-1])
    counts = np.diff(bounds)
    base_timestamps = rows.timestamps[first_rows]
    max_timestamps = np.maximum.reduceat(rows.timestamps, first_rows)
    timestamp_deltas = VarintColumn.of(rows.timestamps - np.repeat(base_timestamps, counts))
    base_offsets = rows.offsets[first_rows]
    last_deltas = (rows.offsets[first_rows + counts - 1] - base_offsets).tolist()
    offset_deltas = VarintColumn.of(rows.offsets - np.repeat(base_offsets, counts))
    key_lengths = VarintColumn.of(rows.key_lengths)
    lengths = _sizes_without_deltas(rows)
    lengths += timestamp_deltas.sizes
    lengths += offset_deltas.sizes
    lengths += 1  # the attributes
    head = _packed([VarintColumn.of(lengths), 0, timestamp_deltas, offset_deltas, key_lengths])
    value_lengths = _packed([VarintColumn.of(rows.value_lengths)])
    tail = _NO_HEADERS if rows.tail is None else rows.tail
    joined = _join([head, rows.key, value_lengths, rows.value, tail])
    positions = np.frombuffer(joined.buffers()[1], dtype=np.int64)[bounds].tolist()
    data = memoryview(joined.buffers()[2])
    for index, (start, end) in enumerate(itertools.pairwise(positions)):
        count = int(counts[index])
        sequence = fixed.base_sequence
        yield (
            fixed._replace(
                base_offset=int(base_offsets[index]),
                last_offset_delta=last_deltas[index],
                base_timestamp=int(base_timestamps[index]),
                max_timestamp=int(max_timestamps[index]),
                base_sequence=sequence
                if sequence == NO_SEQUENCE
                else sequence_after(sequence, bounds[index]),
                record_count=count,
            ),
            data[start:end],
        )
