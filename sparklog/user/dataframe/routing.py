"""Routing of rows to partitions, and collecting enough of a partition's rows for a batch.

Kafka's rules: a row's own `partition` wins; else a key decides, by murmur2; rows with neither go to one
partition until it has a batch's worth, then to the next (KIP-794, uniform sticky). Everything is done in
columns, without a Python object per row. Rows of a partition keep their order.

Order for callers: `add` each Arrow batch and send the rows that it yields, `drain` at the end.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.protocol.records.partitioner import partition_for_keys
from sparklog.protocol.types import TimestampMs, TopicPartition
from sparklog.user.dataframe.errors import InvalidRowError

RECORD_OVERHEAD_BYTES: Final = 12
"""Usual size of a record without its key, value and headers."""
_HEADER_OVERHEAD_BYTES: Final = 2
_FEWEST_RUNS_TO_SORT: Final = 16
_FEWEST_ROWS_A_RUN: Final = 64
"""Rows that come in long runs of one partition, as rows without keys do, are sliced instead of sorted."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class RoutedRows(NamedTuple):
    """Rows of one partition for one or more batches: `key`, `value`, `headers`, `timestamp` (ms)."""

    topic_partition: TopicPartition
    rows: pa.Table


class Targets(NamedTuple):
    partition_count: int
    free: Sequence[int]
    """Partitions for rows without key and partition."""


class _PartialBatch:
    """Rows of one partition that do not fill a batch yet."""

    __slots__ = ("chunks", "size_bytes", "sizes")

    def __init__(self) -> None:
        self.chunks: list[pa.RecordBatch] = []
        self.sizes: list[Int64s] = []
        self.size_bytes = 0


class _Sticky:
    """Present partition for a topic's rows without key and partition."""

    __slots__ = ("filled_bytes", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.filled_bytes = 0


class RowRouter:
    """Collects rows by partition until there is a batch of them.

    With `topic` None each row's topic is in its `topic` column. `targets` is called once for each topic, and
    `newest_targets`, which must not use cached metadata, if a row names an unknown partition: at most once
    for each Arrow batch and topic. The rows held back are bounded by `buffer_bytes`, beyond which partial
    batches are yielded. The memory of the Arrow batches that they came in is bounded by as much again.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        targets: Callable[[str], Targets],
        newest_targets: Callable[[str], Targets],
        batch_size_bytes: int,
        buffer_bytes: int,
        seed: int | None = None,
    ) -> None:
        self._topic = topic
        self._targets = targets
        self._newest_targets = newest_targets
        self._batch_size_bytes = max(batch_size_bytes, 1)
        self._buffer_bytes = buffer_bytes
        self._random = random.Random(seed)
        self._counts: dict[str, int] = {}
        self._free: dict[str, Int32s] = {}
        self._sticky: dict[str, _Sticky] = {}
        self._waiting: dict[TopicPartition, _PartialBatch] = {}
        self._waiting_bytes = 0
        self._kept_bytes = 0
        """Bound of the memory for waiting rows: a slice keeps the whole batch from which it was cut."""
        self.oldest_timestamps_ms: dict[str, TimestampMs] = {}
        """The oldest event time of each topic with rows; topics without event times are missing."""

    def add(self, batch: pa.RecordBatch) -> Iterator[RoutedRows]:
        """Take rows as Spark gives them; yield partitions' rows that fill batches.

        Raises:
            InvalidRowError: a topic is null, a partition does not exist, a timestamp is negative.
        """
        if batch.num_rows == 0:
            return
        rows = _records(batch)
        partitions = _column(batch, "partition")
        for topic, indices in self._by_topic(batch):
            of_topic = rows if indices is None else rows.take(indices)
            chosen = partitions if indices is None or partitions is None else partitions.take(indices)
            yield from self._add_to_topic(topic, of_topic, chosen)
        if self._waiting_bytes > self._buffer_bytes:
            yield from self.drain()
        elif self._kept_bytes > self._waiting_bytes + self._buffer_bytes:
            self._let_go()

    def drain(self) -> Iterator[RoutedRows]:
        """Yield all rows that are held back."""
        for topic_partition, waiting in self._waiting.items():
            if waiting.chunks:
                self._waiting_bytes -= waiting.size_bytes
                rows = pa.Table.from_batches(waiting.chunks)
                self._waiting[topic_partition] = _PartialBatch()
                yield RoutedRows(topic_partition, rows)
        self._kept_bytes = 0

    def _let_go(self) -> None:
        """Copy the waiting rows, so that the batches they were cut from can be freed."""
        for waiting in self._waiting.values():
            if waiting.chunks:
                rows = pa.concat_batches(waiting.chunks)
                waiting.chunks = [rows.take(pa.array(np.arange(rows.num_rows)))]
        self._kept_bytes = self._waiting_bytes

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array | None]]:
        """Yield each topic and the indices of its rows; None for all rows."""
        if self._topic is not None:
            yield self._topic, None
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise InvalidRowError(
                "null topic present in the data. Use the topic option for setting a topic for all rows, or "
                "filter out rows whose topic is null"
            )
        encoded = topics.dictionary_encode()
        if len(encoded.dictionary) == 1:
            yield encoded.dictionary[0].as_py(), None
            return
        for index, topic in enumerate(encoded.dictionary):
            yield topic.as_py(), pc.indices_nonzero(pc.equal(encoded.indices, index))

    def _add_to_topic(
        self, topic: str, rows: pa.RecordBatch, chosen: pa.Array | None
    ) -> Iterator[RoutedRows]:
        if topic not in self._counts:
            self._learn(topic, self._targets(topic))
        if (oldest_ms := _oldest(rows)) is not None:
            self.oldest_timestamps_ms[topic] = min(oldest_ms, self.oldest_timestamps_ms.get(topic, oldest_ms))
        sizes = _sizes(rows)
        self._kept_bytes += int(sizes.sum())
        partitions = self._partitions(topic, rows, chosen, sizes)
        bounds = np.flatnonzero(np.diff(partitions, prepend=-1, append=-1))
        if len(bounds) > _FEWEST_RUNS_TO_SORT + rows.num_rows // _FEWEST_ROWS_A_RUN:
            order = np.argsort(partitions, kind="stable")
            rows, sizes, partitions = rows.take(pa.array(order)), sizes[order], partitions[order]
            bounds = np.flatnonzero(np.diff(partitions, prepend=-1, append=-1))
        for start, end in itertools.pairwise(bounds.tolist()):
            yield from self._hold(
                TopicPartition(topic, int(partitions[start])),
                rows.slice(start, end - start),
                sizes[start:end],
            )

    def _learn(self, topic: str, targets: Targets) -> None:
        self._counts[topic] = targets.partition_count
        self._free[topic] = np.array(targets.free, dtype=np.int32)

    def _partitions(self, topic: str, rows: pa.RecordBatch, chosen: pa.Array | None, sizes: Int64s) -> Int32s:
        own = None
        if chosen is not None and chosen.null_count < len(chosen):
            own = self._own_partitions(topic, chosen)
        keys = _column(rows, "key")
        if keys is None or keys.null_count == len(keys):
            partitions = np.full(rows.num_rows, -1, dtype=np.int32)
        else:
            partitions = partition_for_keys(keys, self._counts[topic])
        if own is not None:
            partitions = np.where(own < 0, partitions, own).astype(np.int32, copy=False)
        free = partitions < 0
        if free.any():
            partitions = partitions.copy()
            partitions[free] = self._sticky_partitions(topic, sizes[free])
        return partitions

    def _own_partitions(self, topic: str, chosen: pa.Array) -> Int32s:
        """Return the partition that each row names, -1 for null.

        An unknown one may have been added since: the metadata may be minutes old.

        Raises:
            InvalidRowError: one does not exist.
        """
        own: Int32s = chosen.fill_null(-1).to_numpy(zero_copy_only=False)
        if (own >= self._counts[topic]).any():
            self._learn(topic, self._newest_targets(topic))
        count = self._counts[topic]
        is_given = chosen.is_valid().to_numpy(zero_copy_only=False)
        wrong = is_given & ((own < 0) | (own >= count))
        if wrong.any():
            raise InvalidRowError(
                f"partition {int(own[wrong][0])} does not exist: topic {topic} has {count}, from 0 on"
            )
        return own

    def _sticky_partitions(self, topic: str, sizes: Int64s) -> Int32s:
        """Return the sticky partition of each row, moving on after each batch's worth of bytes."""
        free = self._free[topic]
        count = len(free)
        sticky = self._sticky.get(topic)
        if sticky is None:
            # A random start distributes the tasks of a write, which write few batches each, over the
            # partitions.
            sticky = self._sticky[topic] = _Sticky(self._random.randrange(count))
        ends = np.cumsum(sizes) + sticky.filled_bytes
        switches = (ends - sizes) // self._batch_size_bytes
        partitions = (switches + sticky.partition) % count
        moved = int(ends[-1]) // self._batch_size_bytes
        sticky.partition = (sticky.partition + moved) % count
        sticky.filled_bytes = int(ends[-1]) % self._batch_size_bytes
        chosen: Int32s = free[partitions]
        return chosen

    def _hold(
        self, topic_partition: TopicPartition, rows: pa.RecordBatch, sizes: Int64s
    ) -> Iterator[RoutedRows]:
        """Add rows to a partition's; yield those that fill whole batches."""
        waiting = self._waiting.setdefault(topic_partition, _PartialBatch())
        size_bytes = int(sizes.sum())
        waiting.chunks.append(rows)
        waiting.sizes.append(sizes)
        waiting.size_bytes += size_bytes
        self._waiting_bytes += size_bytes
        if waiting.size_bytes < self._batch_size_bytes:
            return
        table = pa.Table.from_batches(waiting.chunks)
        ends = np.cumsum(np.concatenate(waiting.sizes))
        full_bytes = waiting.size_bytes // self._batch_size_bytes * self._batch_size_bytes
        full_rows = max(int(np.searchsorted(ends, full_bytes, side="right")), 1)
        given_bytes = int(ends[full_rows - 1])
        rest = _PartialBatch()
        if full_rows < table.num_rows:
            rest.chunks = table.slice(full_rows).to_batches()
            rest.sizes = [np.diff(ends[full_rows - 1 :])]
            rest.size_bytes = waiting.size_bytes - given_bytes
        self._waiting[topic_partition] = rest
        self._waiting_bytes -= given_bytes
        yield RoutedRows(topic_partition, table.slice(0, full_rows))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of records: binary key and value, headers, timestamps in milliseconds."""
    columns: dict[str, pa.Array] = {}
    for name in ("key", "value"):
        column = _column(batch, name)
        if column is not None:
            columns[name] = column if pa.types.is_binary(column.type) else column.cast(pa.binary())
    if (headers := _column(batch, "headers")) is not None:
        keys, _values = headers.flatten().flatten()
        if keys.null_count:
            raise InvalidRowError("a header's key is null: a record's headers have keys")
        columns["headers"] = headers
    if (timestamps := _column(batch, "timestamp")) is not None and _is_event_time(timestamps.type):
        columns["timestamp"] = _milliseconds(timestamps)
    return pa.RecordBatch.from_pydict(columns)


def _is_event_time(data_type: pa.DataType) -> bool:
    """Return whether a column `timestamp` has event times; others are left out, as by Spark's connector."""
    return pa.types.is_float64(data_type) or (pa.types.is_timestamp(data_type) and data_type.tz is not None)


def _oldest(rows: pa.RecordBatch) -> TimestampMs | None:
    timestamps = _column(rows, "timestamp")
    return None if timestamps is None else pc.min(timestamps).as_py()


def _milliseconds(timestamps: pa.Array) -> pa.Array:
    """Convert Spark's timestamps (microseconds, or a double's seconds) to milliseconds; null stays null."""
    if pa.types.is_floating(timestamps.type):
        try:
            # A double is rarely a whole number of milliseconds, and may be slightly less than one.
            microseconds = pc.round(pc.multiply(timestamps, 1_000_000.0)).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InvalidRowError(f"a timestamp is not a time in seconds: {error}") from error
    else:
        microseconds = timestamps.cast(pa.timestamp("us", timestamps.type.tz)).cast(pa.int64())
    least = pc.min(microseconds).as_py()
    if least is not None and least < 0:
        raise InvalidRowError(
            f"timestamp {least // 1000} ms is negative: a record's timestamp is 1970 or later, or null"
        )
    return pc.divide(microseconds, 1000)


def _sizes(rows: pa.RecordBatch) -> Int64s:
    sizes: Int64s = np.full(rows.num_rows, RECORD_OVERHEAD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        if (column := _column(rows, name)) is not None:
            sizes += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    if (headers := _column(rows, "headers")) is not None and headers.null_count < len(headers):
        lengths = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False)
        entries = pc.list_flatten(headers)
        entry_sizes = np.full(len(entries), _HEADER_OVERHEAD_BYTES, dtype=np.int64)
        for field in ("key", "value"):
            entry_sizes += (
                pc.binary_length(pc.struct_field(entries, field)).fill_null(0).to_numpy(zero_copy_only=False)
            )
        ends = np.cumsum(lengths)
        total = np.concatenate(([0], np.cumsum(entry_sizes)))
        sizes += total[ends] - total[ends - lengths]
    return sizes
