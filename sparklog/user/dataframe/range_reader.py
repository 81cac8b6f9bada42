"""The part of a read that runs in tasks: the records of one offset range as Arrow columns.

Records of the object store come first, and the rest from brokers. Batch and streaming readers plan ranges
differently, and read them alike.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.decode import decode_batches
from sparklog.protocol.types import Offset, TopicPartition
from sparklog.spark_versions import arrow_schema
from sparklog.user.client.aborted import without_aborted
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.errors import OffsetOutOfRangeError, TopicRecreatedError, UnknownTopicError
from sparklog.user.client.fetching import FetchedBatches, PartitionFetcher
from sparklog.user.client.nearest_replica import ReaderPlace
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.planning import OffsetRange
from sparklog.user.dataframe.schemas import check_read_schema

if TYPE_CHECKING:
    from sparklog.user.dataframe.remote.history import History
    from sparklog.user.dataframe.remote.history_reader import HistoryRows

logger = logging.getLogger(__name__)

_CONSTANT: Final = frozenset({"topic", "partition"})
"""Columns of one value, which are not read from the store."""
_MOST_ROWS: Final = 32 * 1024
"""Bound of an Arrow batch for Spark."""


class OffsetRangePartition(InputPartition):
    """One task's offset range, the id of its topic, and what the object store has of the range."""

    def __init__(
        self, offset_range: OffsetRange, topic_id: UUID | None, history: "History | None" = None
    ) -> None:
        super().__init__(offset_range)
        self.offset_range = offset_range
        self.topic_id = topic_id
        self.history = history


class RangeReader:
    """Reads the columns of `schema`; created on the driver, sent to the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Check the schema.

        Raises:
            DataSourceSchemaError: its columns are not those of records.
        """
        check_read_schema(schema)
        self._options = options
        self._columns = tuple(schema.fieldNames())
        self._arrow_schema = arrow_schema(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, in order.

        Raises:
            DataLossError: some of its offsets are gone, and failOnDataLoss is true.
            KafkaError: they could not be read, or are corrupt.
        """
        if isinstance(partition, OffsetRangePartition):  # Spark makes up one of its own when there are none
            start_offset = yield from self._read_history(partition)
            if start_offset < partition.offset_range.end_offset:
                with ClusterClient(self._options.client) as cluster:
                    yield from self._read_range(cluster, partition, start_offset)

    def _read_history(self, partition: OffsetRangePartition) -> Generator[pa.RecordBatch, None, Offset]:
        """Yield what the object store has, and return the offset from which brokers are to be read."""
        offset_range, history, store = partition.offset_range, partition.history, self._options.store
        if history is None or store is None or partition.topic_id is None:
            return offset_range.start_offset
        from sparklog.user.dataframe.remote.history_reads import HistoryReads

        reads = HistoryReads(store, offset_range.topic_partition, partition.topic_id, history)
        columns = [name for name in self._columns if name not in _CONSTANT]
        for rows in reads.rows(columns, check_crcs=self._options.fetch.check_crcs):
            yield from self._convert(rows, offset_range.topic_partition)
        return reads.position

    def _convert(self, rows: "HistoryRows", topic_partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        constants = {
            "topic": lambda: pa.repeat(pa.scalar(topic_partition.topic, pa.string()), rows.row_count),
            "partition": lambda: pa.array(np.full(rows.row_count, topic_partition.partition, dtype=np.int32)),
        }
        table = pa.Table.from_arrays(
            [constants[name]() if name in _CONSTANT else rows.columns.column(name) for name in self._columns],
            schema=self._arrow_schema,
        )
        yield from table.combine_chunks().to_batches(max_chunksize=_MOST_ROWS)

    def _read_range(
        self, cluster: ClusterClient, partition: OffsetRangePartition, start_offset: Offset
    ) -> Iterator[pa.RecordBatch]:
        offset_range = partition.offset_range
        fetcher = PartitionFetcher(
            cluster,
            self._options.fetch,
            offset_range.topic_partition,
            start_offset,
            offset_range.end_offset,
            topic_id=partition.topic_id,
            reader=ReaderPlace(self._options.fetch.client_rack),
        )
        while fetcher.position < offset_range.end_offset:
            try:
                for fetched in fetcher:
                    start_offset = yield from self._read_fetched(fetcher, fetched, offset_range, start_offset)
            except OffsetOutOfRangeError as error:
                start_offset = self._after_loss(error, offset_range)
                fetcher.resume_at(start_offset)
            except (UnknownTopicError, TopicRecreatedError) as error:
                self._options.report_data_loss(
                    f"Offsets {fetcher.position} to {offset_range.end_offset} (exclusive) of "
                    f"{offset_range.topic_partition} are gone: {error.message}",
                    error,
                )
                return

    def _read_fetched(
        self,
        fetcher: PartitionFetcher,
        fetched: FetchedBatches,
        offset_range: OffsetRange,
        start_offset: Offset,
    ) -> Generator[pa.RecordBatch, None, Offset]:
        """Yield the records of fetched batches, and return the offset after them.

        If those of a follower are damaged, the leader serves the first that was not yielded and the rest.
        """
        if fetched.follower_id is None:
            for batch in self._decode(fetched, offset_range, start_offset, self._columns):
                yield self._converted(batch)
            return fetched.next_offset
        columns = self._columns if "offset" in self._columns else (*self._columns, "offset")
        try:
            for batch in self._decode(fetched, offset_range, start_offset, columns):
                yield self._converted(batch.select(self._columns))
                start_offset = batch.column("offset")[-1].as_py() + 1
        except KafkaError as error:
            logger.warning(
                "%s: records of follower %d are damaged, the leader is asked: %s",
                offset_range.topic_partition,
                fetched.follower_id,
                error,
            )
            fetcher.resume_at_leader(fetched, start_offset)
            return start_offset
        return fetched.next_offset

    def _decode(
        self, fetched: FetchedBatches, offset_range: OffsetRange, start_offset: Offset, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        records = fetched.records
        if self._options.fetch.read_committed and fetched.aborted_transactions:
            records = without_aborted(records, fetched.aborted_transactions)
        yield from decode_batches(
            records,
            columns=columns,
            topic=offset_range.topic_partition.topic,
            partition=offset_range.topic_partition.partition,
            start_offset=start_offset,
            end_offset=offset_range.end_offset,
            check_crcs=self._options.fetch.check_crcs,
        )

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Spark compares schemas, NOT NULL included; the columns are the same.
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._arrow_schema)

    def _after_loss(self, error: OffsetOutOfRangeError, offset_range: OffsetRange) -> int:
        """Return the offset from which to continue when the partition's log no longer has the position."""
        if error.offset < error.log_start_offset:
            resume_at = min(error.log_start_offset, offset_range.end_offset)
        else:
            resume_at = offset_range.end_offset
        self._options.report_data_loss(
            f"Offsets {error.offset} to {resume_at} (exclusive) of {error.topic_partition} are gone; it has "
            f"{error.log_start_offset} to {error.log_end_offset} (exclusive)",
            error,
        )
        return resume_at
