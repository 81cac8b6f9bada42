"""Arrow columns of records whose fields have been located, as in Spark's Kafka source.

A binary column is first an Arrow array over the batches' own bytes, at no cost, which one call in C++ then
packs. For long values that is an array of views; for short ones, which a view would have to contain, an array
of which every second value is used.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader, TimestampType
from sparklog.protocol.records.fields import FieldPositions, locate_headers
from sparklog.protocol.records.numpy_arrays import column_of
from sparklog.protocol.records.varint_columns import Bytes, Int64s
from sparklog.protocol.types import TopicPartition

_HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
COLUMN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER_TYPE)),
}
"""The available columns, by their names in Spark's Kafka source, with the Arrow types that Spark expects."""

_INLINE_BYTES: Final = 12
"""Values up to this length are stored inside Arrow's views."""
_LARGEST_MS: Final = (2**63 - 1) // 1000


class LocatedRecords(NamedTuple):
    """Records of one or more batches: their bytes, their fields, and the batch of each."""

    data: Bytes
    batches: Sequence[BatchHeader]
    batch_of_record: Int64s
    starts: Int64s
    """Position of each record's length."""
    fields: FieldPositions
    offsets: Int64s

    def slice(self, start: int, end: int) -> "LocatedRecords":
        return self._replace(
            batch_of_record=self.batch_of_record[start:end],
            starts=self.starts[start:end],
            fields=FieldPositions._make(field[start:end] for field in self.fields),
            offsets=self.offsets[start:end],
        )


def build_column(name: str, records: LocatedRecords, topic_partition: TopicPartition) -> pa.Array:
    """Return the column `name` of COLUMN_TYPES.

    Raises:
        KafkaError: INVALID_TIMESTAMP for one that does not fit 64 bits of microseconds.
        MalformedRecordsError: headers do not fill their record.
    """
    return _BUILDERS[name](records, topic_partition)


def _key(records: LocatedRecords, _: TopicPartition) -> pa.Array:
    return binary_column(records.data, records.fields.key_positions, records.fields.key_lengths)


def _value(records: LocatedRecords, _: TopicPartition) -> pa.Array:
    return binary_column(records.data, records.fields.value_positions, records.fields.value_lengths)


def _topic(records: LocatedRecords, topic_partition: TopicPartition) -> pa.Array:
    return pa.repeat(pa.scalar(topic_partition.topic, pa.string()), len(records.batch_of_record))


def _partition(records: LocatedRecords, topic_partition: TopicPartition) -> pa.Array:
    numbers = np.full(len(records.batch_of_record), topic_partition.partition, dtype=np.int32)
    return column_of(numbers, pa.int32())


def _offset(records: LocatedRecords, _: TopicPartition) -> pa.Array:
    return column_of(records.offsets, pa.int64())


def _timestamp(records: LocatedRecords, _: TopicPartition) -> pa.Array:
    timestamps_ms = _timestamps_ms(records)
    if len(timestamps_ms) and not -_LARGEST_MS <= timestamps_ms.min() <= timestamps_ms.max() <= _LARGEST_MS:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamps from {timestamps_ms.min()} to {timestamps_ms.max()} ms are not all within "
            f"the {_LARGEST_MS} ms that a timestamp column can hold",
        )
    return column_of(timestamps_ms * 1000, COLUMN_TYPES["timestamp"])


def saturated_timestamp_column(records: LocatedRecords) -> pa.Array:
    """Return the column `timestamp`, in which those beyond the type's range are at its ends."""
    timestamps_ms = _timestamps_ms(records).clip(-_LARGEST_MS, _LARGEST_MS)
    return column_of(timestamps_ms * 1000, COLUMN_TYPES["timestamp"])


def _timestamps_ms(records: LocatedRecords) -> Int64s:
    batches = records.batches
    append_time = np.array([batch.timestamp_type is TimestampType.LOG_APPEND_TIME for batch in batches])
    base = np.array([batch.base_timestamp for batch in batches], dtype=np.int64)
    if append_time.any():
        # Under LogAppendTime every record has the batch's largest timestamp; its own delta is ignored.
        base = np.where(append_time, np.array([batch.max_timestamp for batch in batches], np.int64), base)
        deltas = np.where(append_time[records.batch_of_record], 0, records.fields.timestamp_deltas)
    else:
        deltas = records.fields.timestamp_deltas
    timestamps_ms: Int64s = base[records.batch_of_record] + deltas
    return timestamps_ms


def _timestamp_type(records: LocatedRecords, _: TopicPartition) -> pa.Array:
    types = np.array([batch.timestamp_type for batch in records.batches], dtype=np.int32)
    return column_of(types[records.batch_of_record], pa.int32())


def _headers(records: LocatedRecords, _: TopicPartition) -> pa.Array:
    counts = records.fields.header_counts
    column_type = COLUMN_TYPES["headers"]
    if not counts.any():
        return pa.nulls(len(counts), column_type)
    found = locate_headers(records.data, counts, records.fields.header_positions, records.fields.ends)
    keys = binary_column(records.data, found.key_positions, found.key_lengths)
    values = binary_column(records.data, found.value_positions, found.value_lengths)
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    elements = pa.StructArray.from_arrays([_as_text(keys), values], fields=list(_HEADER_TYPE))
    nulls = column_of(counts == 0, pa.bool_())
    return pa.ListArray.from_arrays(column_of(offsets, pa.int32()), elements, type=column_type, mask=nulls)


def _as_text(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: as in Java, what cannot be read becomes U+FFFD
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


def binary_column(data: Bytes, positions: Int64s, lengths: Int64s) -> pa.Array:
    """Return data[position : position + length] for each row; a length of -1 is null.

    The ranges must be in ascending order, apart and inside `data`.
    """
    count = len(positions)
    if count == 0:
        return pa.array([], pa.binary())
    shortest = int(lengths.min())
    if lengths.max() < 0:
        return pa.nulls(count, pa.binary())
    if shortest > _INLINE_BYTES:
        return _views(data, positions, lengths).cast(pa.binary())
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[::2] = positions
    np.add(positions, np.maximum(lengths, 0), out=bounds[1::2], casting="same_kind")
    validity = None
    if shortest < 0:
        valid = np.ones(2 * count - 1, dtype=bool)
        valid[::2] = lengths >= 0
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(bounds), pa.py_buffer(data)]
    wanted_and_between = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    every_second = np.arange(0, 2 * count, 2, dtype=np.int32)
    return wanted_and_between.take(column_of(every_second, pa.int32()))


def value_view_column(records: LocatedRecords) -> pa.Array:
    """Return the column `value` as views; values that are all long lie in the batches' own bytes."""
    positions, lengths = records.fields.value_positions, records.fields.value_lengths
    if len(lengths) and lengths.min() > _INLINE_BYTES:
        return _views(records.data, positions, lengths)
    return binary_column(records.data, positions, lengths).cast(pa.binary_view())


def _views(data: Bytes, positions: Int64s, lengths: Int64s) -> pa.Array:
    """Return views of data[position : position + length], each longer than a view itself could contain.

    They have no prefixes, by which Arrow compares values, but does not write or convert them.
    """
    views = np.zeros((len(positions), 4), dtype=np.int32)  # length, prefix, buffer, position
    views[:, 0] = lengths
    views[:, 3] = positions
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(positions), buffers)


_BUILDERS: Final[Mapping[str, Callable[[LocatedRecords, TopicPartition], pa.Array]]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}
