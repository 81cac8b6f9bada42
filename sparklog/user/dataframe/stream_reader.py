"""The streaming source in Spark's interface: `spark.readStream.format("sparklog")`.

Spark keeps one object for each query, in a separate process on the driver, for everything but `read`, which
runs in the tasks on another object. Spark loses errors of a constructor, so options and schema are checked in
the first call (the options before, when Spark asks for the schema).

Positions of a streaming query in its checkpoint: the JSON of Spark's Kafka connector.

`{"topic": {"0": 23}}` means that all offsets of partition 0 below 23 were read. So a checkpoint continues
under either format.

Spark records the end of a batch, and takes the end of the previous batch for its start. The first batch has
no previous one: if it is repeated, after a crash, the source is asked again for the initial offset, and the
latest offset has changed by then. So the end of a first batch contains its start, too, under names that no
topic can have. The connector records it in a file of its own; Python sources do not know where.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.protocol.types import Offset, TopicPartition
from sparklog.spark_versions import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from sparklog.user.dataframe.errors import errors_in_one_line
from sparklog.user.dataframe.options import StreamReadOptions
from sparklog.user.dataframe.range_reader import RangeReader
from sparklog.user.dataframe.schemas import check_read_schema
from sparklog.user.dataframe.stream_source import StreamSource

logger = logging.getLogger(__name__)

Document: TypeAlias = dict[str, dict[str, int]]
_START: Final = "start of the first batch/"
"""A topic's name has no slash."""


class StreamPosition(NamedTuple):
    """The next offset to read of each partition; for the first batch also its start.

    A first batch that began without partitions is marked, too: by `_START` alone.
    """

    offsets: Mapping[TopicPartition, Offset]
    first_starts: Mapping[TopicPartition, Offset] | None = None

    @classmethod
    def parse(cls, document: Mapping[str, Mapping[str, int]]) -> "StreamPosition":
        offsets: dict[TopicPartition, Offset] = {}
        starts: dict[TopicPartition, Offset] = {}
        for name, numbers in document.items():
            topic = name.removeprefix(_START)
            into = offsets if topic == name else starts
            into.update((TopicPartition(topic, int(number)), offset) for number, offset in numbers.items())
        is_first = any(name.startswith(_START) for name in document)
        return cls(offsets, starts if is_first else None)

    def document(self) -> Document:
        document: Document = {}
        for topic_partition, offset in sorted(self.offsets.items()):
            document.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offset
        if self.first_starts is not None and not self.first_starts:
            document[_START] = {}
        for topic_partition, offset in sorted((self.first_starts or {}).items()):
            document.setdefault(_START + topic_partition.topic, {})[str(topic_partition.partition)] = offset
        return document


class SparklogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the columns of `schema`, batch after batch."""

    def __init__(
        self, options: Mapping[str, str], default_bootstrap_servers: str | None, schema: StructType
    ) -> None:
        self._given = dict(options)
        self._default_bootstrap_servers = default_bootstrap_servers
        self._schema = schema
        self._initial: Document | None = None

    @cached_property
    def _options(self) -> StreamReadOptions:
        check_read_schema(self._schema)
        return StreamReadOptions.parse(self._given, self._default_bootstrap_servers)

    @cached_property
    def _source(self) -> StreamSource:
        return StreamSource(self._options)

    @errors_in_one_line()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return whether there are limits; the reader itself applies them."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    @errors_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._initial = StreamPosition(self._source.starts()).document()
        return self._initial

    @errors_in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch, `start` if there is none; waits briefly for new records."""
        return self._batch_end(start, limited=not isinstance(limit, ReadAllAvailable))

    def _batch_end(self, start: Document, *, limited: bool) -> Document:
        starts = StreamPosition.parse(start).offsets
        ends = self._source.ends(starts, limited=limited)
        if start == self._initial:  # Spark makes a first batch even of nothing
            return StreamPosition(ends, starts).document()
        return start if ends == starts else StreamPosition(ends).document()

    @errors_in_one_line()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the last known latest offsets, for the query's progress."""
        latest = self._source.latest_known
        return None if latest is None else StreamPosition(latest).document()

    @errors_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the latest offsets on their next use: later records are not read."""
        self._source.hold_latest()

    @errors_in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch: one non-empty offset range for each task."""
        ends = StreamPosition.parse(end)
        starts = StreamPosition.parse(start).offsets
        if ends.first_starts is not None and start == self._initial:
            starts = ends.first_starts  # of the first batch, maybe done a second time
        ranges = self._source.ranges(starts, ends.offsets)
        return self._source.tasks(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, in order; runs in a task."""
        with errors_in_one_line():
            yield from RangeReader(self._options.read, self._schema).read(partition)

    def stop(self) -> None:
        if "_source" in self.__dict__:
            self._source.close()


class SelfPositionedStreamReader(SparklogStreamReader):
    """The reader for a PySpark that gives `latestOffset` neither a position nor a limit.

    The position is the end of the batch that was planned last: when a query restarts, Spark first plans an
    empty batch at its position (`AcceptsLatestSeenOffset`). Under the trigger availableNow it then asks for
    one end only, and makes one batch of it; Spark does not tell the trigger. So the first end after each
    start has no limit: with one, records would stay unread.
    """

    _position: Document | None = None
    _beginning: Document | None = None
    """Start of a new query, as of its first `latestOffset`."""
    _has_ended_a_batch = False

    @errors_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a new query; Spark asks after `latestOffset`."""
        initial = super().initialOffset() if self._beginning is None else self._beginning
        self._initial = initial
        self._position = self._position or initial
        return initial

    @errors_in_one_line()
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - before Spark 4.2
        """Return the end of the next batch; waits briefly for new records."""
        limited, self._has_ended_a_batch = self._has_ended_a_batch, True
        if not limited and self._options.limits.are_set:
            logger.warning(
                "The first batch reads all available records: before Spark 4.2 maxOffsetsPerTrigger and "
                "minOffsetsPerTrigger hold from the second batch of a start on, and not under availableNow"
            )
        if self._position is not None:
            return self._batch_end(self._position, limited=limited)
        starts = self._source.starts()
        self._beginning = StreamPosition(starts).document()
        return StreamPosition(self._source.ends(starts, limited=False), starts).document()

    @errors_in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch, and continue from its end."""
        planned = super().partitions(start, end)
        self._position = end
        return planned


def stream_reader(
    options: Mapping[str, str], default_bootstrap_servers: str | None, schema: StructType
) -> SparklogStreamReader:
    reader = SparklogStreamReader if HAS_READ_LIMITS else SelfPositionedStreamReader
    return reader(options, default_bootstrap_servers, schema)
