"""The part of a write that runs in tasks: encoding of Arrow batches and sending them to the leaders.

A task is one idempotent producer: rows that are sent again after a failure are in the log once. The caller
chooses the transaction, if there is one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.encode import encode_batches
from sparklog.protocol.types import TimestampMs, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.producer import Producer
from sparklog.user.client.topics import Topic
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.prepared_rows import records_of
from sparklog.user.dataframe.retention_warning import oldest_of, warn_of_old_event_times
from sparklog.user.dataframe.routing import RoutedRows, RowRouter, Targets
from sparklog.user.dataframe.schemas import check_write_schema


class WrittenRows(NamedTuple):
    counts: Counter[TopicPartition]
    oldest_timestamps_ms: Mapping[str, TimestampMs]
    """By topic; topics without event times are missing."""
    topic_ids: Mapping[str, UUID | None]
    """Id of each topic, from before its first row was written."""
    unwritten_rows: int
    """All rows, if the caller has found them written already."""


class RowWriter:
    """Writes rows of `schema`; created on the driver, sent to the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Check that rows of this schema can be written with the options.

        Raises:
            DataSourceSchemaError: the schema is not one of records.
        """
        check_write_schema(schema, options.topic)
        self._options = options

    def write(
        self, cluster: ClusterClient, rows: Iterator[pa.RecordBatch], begin: Callable[[Producer], bool]
    ) -> WrittenRows:
        """Write all rows of a task; return when all are acknowledged.

        `begin` gives the producer its id, before the first row is written, or returns False: then none is
        written. It isn't called without rows.

        Raises:
            InvalidRowError: a row cannot become a record.
            DeliveryError, KafkaError: the cluster refused the rows or did not answer.
        """
        producer = Producer(cluster, self._options.producer)
        topic_ids: dict[str, UUID | None] = {}

        def targets(name: str) -> Targets:
            count = producer.partition_count(name)
            topic = cluster.topic(name)
            topic_ids.setdefault(name, topic.topic_id)
            return Targets(count, _with_leaders(topic))

        def newest_targets(name: str) -> Targets:
            cluster.forget(name)
            return targets(name)

        router = RowRouter(
            topic=self._options.topic,
            targets=targets,
            newest_targets=newest_targets,
            batch_size_bytes=self._options.producer.batch_size_bytes,
            buffer_bytes=self._options.producer.buffer_bytes,
        )
        writes: bool | None = None
        unwritten_rows = 0
        for batch in rows:
            if not batch.num_rows:
                continue
            if writes is None:
                writes = begin(producer)
            if not writes:
                unwritten_rows += batch.num_rows
                continue
            for routed in router.add(batch):
                self._send(producer, routed)
        for routed in router.drain():
            self._send(producer, routed)
        producer.flush()
        return WrittenRows(producer.acknowledged, router.oldest_timestamps_ms, topic_ids, unwritten_rows)

    def find_topic(self, cluster: ClusterClient) -> None:
        """Check that the topic of the option `topic`, if there is one, exists; brokers may create it.

        Raises:
            UnknownTopicError: it does not.
            KafkaError: the request is refused, or no broker answers.
        """
        if self._options.topic is not None:
            Producer(cluster, self._options.producer).partition_count(self._options.topic)

    def written(self, messages: list[WriterCommitMessage | None]) -> Counter[TopicPartition]:
        """Return the number of written records by partition; warn if retention will delete them.

        Called on the driver, when all tasks are done.
        """
        known = records_of(messages)
        oldest = oldest_of(message.oldest_timestamps_ms for message in known)
        warn_of_old_event_times(self._options.client, oldest, wall_clock_ms())
        counts: Counter[TopicPartition] = Counter()
        for message in known:
            counts.update(message.counts)
        return counts

    def _send(self, producer: Producer, routed: RoutedRows) -> None:
        config = self._options.producer
        columns = {name: routed.rows.column(name) for name in routed.rows.column_names}
        for batch in encode_batches(
            key=columns.get("key"),
            value=columns["value"],
            headers=columns.get("headers"),
            timestamp=columns.get("timestamp"),
            default_timestamp_ms=wall_clock_ms(),
            batch_size_bytes=producer.batch_size_bytes(routed.topic_partition.topic),
            codec=config.codec,
            level=config.compression_level,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.next_sequence(routed.topic_partition),
            transactional=producer.transactional_id is not None,
        ):
            if batch.size_bytes > config.max_request_bytes:
                raise KafkaError(
                    ErrorCode.message_too_large,
                    f"a row for {routed.topic_partition} is {batch.size_bytes} bytes as a record, more than "
                    f"kafka.max.request.size, which is {config.max_request_bytes}",
                )
            producer.send(routed.topic_partition, batch.data, batch.record_count)


def _with_leaders(topic: Topic) -> list[int]:
    """Return the partitions that have a leader; all, if none has one."""
    leading = [partition for partition, leader in topic.leaders.items() if leader is not None]
    return sorted(leading or topic.leaders)
