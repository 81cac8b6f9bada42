"""Where decisions lie: a compacted topic of the cluster that is written to, made when it is first needed.

A decision's record is appended in its decider's transaction, with sequence 0: in version 2 of transactions
each has an epoch of its own. It is found by its offset, or by reading its partition, which compaction keeps
short.
"""

import logging
from datetime import timedelta
from typing import Final

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from sparklog.client.aborted import without_aborted
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.config import FetchConfig
from sparklog.client.errors import UnknownTopicError
from sparklog.client.fetching import PartitionFetcher
from sparklog.client.offsets import SpecialOffset, list_offsets
from sparklog.clocks import wall_clock_ms
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.partition_for import partition_for
from sparklog.records.batch import iterate_headers
from sparklog.records.builder import SimpleRecord, build_batch, read_records
from sparklog.records.codecs import Codec
from sparklog.sink.machine.decisions import Decision, Position
from sparklog.sink.machine.errors import UnreadableDecisionError
from sparklog.sink.machine.names import DECISIONS_TOPIC, SinkId
from sparklog.sink.machine.steps import DeciderStamp
from sparklog.types import Offset, TopicPartition

__all__ = ["DecisionsTopic"]

logger = logging.getLogger(__name__)

_PARTITIONS: Final = 8
_REPLICAS: Final = 3
_COMPRESSED_FROM_BYTES: Final = 4_096
"""A decision of so many tasks is worth it: ids have much in common."""
_FETCH: Final = FetchConfig(read_committed=True)


class DecisionsTopic:
    """The topic in one cluster."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def partition_of(self, sink: SinkId) -> TopicPartition:
        """Return where a sink's decisions go; the topic is made if there is none.

        Raises:
            KafkaError: it can't be made.
        """
        try:
            topic = self._cluster.topic(DECISIONS_TOPIC, timeout_ms=0)
        except UnknownTopicError:
            self._create()
            topic = self._cluster.topic(DECISIONS_TOPIC)
        return TopicPartition(DECISIONS_TOPIC, partition_for(sink.text, topic.partition_count))

    def append(self, sink: SinkId, decider: DeciderStamp, decision: Decision) -> Position | ErrorCode:
        """Append a record in the decider's transaction; return the error if that is none to try again after.

        Raises:
            ApiTimeoutError: it could not be appended within `api_timeout_ms`.
        """
        value = decision.encode()
        batch = build_batch(
            [SimpleRecord(sink.text.encode(), value, timestamp_ms=wall_clock_ms())],
            producer_id=decider.producer_id,
            producer_epoch=decider.producer_epoch,
            base_sequence=0,
            codec=Codec.GZIP if len(value) >= _COMPRESSED_FROM_BYTES else Codec.NONE,
            transactional=True,
        )
        topic_partition = self.partition_of(sink)
        appended = self._produce(topic_partition, batch, sink.decider_id)
        return appended if isinstance(appended, ErrorCode) else Position(topic_partition.partition, appended)

    def forget(self, sink: SinkId) -> ErrorCode | Offset:
        """Write a tombstone.

        Raises:
            ApiTimeoutError: it could not be appended within `api_timeout_ms`.
        """
        tombstone = SimpleRecord(sink.text.encode(), None, timestamp_ms=wall_clock_ms())
        return self._produce(self.partition_of(sink), build_batch([tombstone]), None)

    def read(self, sink: SinkId, position: Position) -> Decision:
        """Return the decision at a position.

        Raises:
            UnreadableDecisionError: it is not there, or not of this version.
            KafkaError: the partition can't be read.
        """
        topic_partition = TopicPartition(DECISIONS_TOPIC, position.partition)
        found = self._last(sink, topic_partition, position.offset, position.offset + 1)
        if found is None:
            raise UnreadableDecisionError(f"it is not at offset {position.offset} of {topic_partition}")
        return found[1]

    def scan(self, sink: SinkId) -> tuple[Position, Decision] | None:
        """Return a sink's last decision by reading all that is committed in its partition.

        Raises:
            UnreadableDecisionError: it is not of this version.
            KafkaError: the partition can't be read.
        """
        topic_partition = self.partition_of(sink)
        bounds = [
            list_offsets(self._cluster, {topic_partition: end}, read_committed=True)[topic_partition].offset
            for end in (SpecialOffset.EARLIEST, SpecialOffset.LATEST)
        ]
        first, end = bounds
        assert first is not None and end is not None, "every partition has a first and a last offset"
        return self._last(sink, topic_partition, first, end)

    def _last(
        self, sink: SinkId, topic_partition: TopicPartition, first: Offset, end: Offset
    ) -> tuple[Position, Decision] | None:
        found: tuple[Offset, bytes | None] | None = None
        key = sink.text.encode()
        for fetched in PartitionFetcher(self._cluster, _FETCH, topic_partition, first, end):
            records = without_aborted(fetched.records, fetched.aborted_transactions)
            for position, header in iterate_headers(memoryview(records)):
                if header.is_control:
                    continue
                for record in read_records(records, header, position):
                    if record.key == key and record.offset is not None and first <= record.offset < end:
                        found = (record.offset, record.value)
        if found is None or found[1] is None:
            return None
        return Position(topic_partition.partition, found[0]), Decision.decode(found[1])

    def _produce(
        self, topic_partition: TopicPartition, batch: bytes, transactional_id: str | None
    ) -> Offset | ErrorCode:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout=timedelta(milliseconds=self._cluster.config.request_timeout_ms),
            topic_data=(
                TopicProduceData(
                    name=topic_partition.topic,
                    partition_data=(PartitionProduceData(index=topic_partition.partition, records=batch),),
                ),
            ),
        )

        def attempt() -> Offset | ErrorCode:
            leader = self._cluster.leader(topic_partition)
            try:
                response = self._cluster.channel(leader.broker_id).request(request)
            except KafkaError:
                self._cluster.disconnect(leader.broker_id)
                raise
            answer = response.responses[0].partition_responses[0]
            if answer.error_code is ErrorCode.none:
                offset: Offset = answer.base_offset
                return offset
            error = KafkaError(
                answer.error_code, answer.error_message or f"{topic_partition} took no decision"
            )
            if not error.retriable:
                return error.error_code
            self._cluster.forget_leader(topic_partition)
            raise error

        return self._cluster.retry("writing a decision", attempt)

    def _create(self) -> None:
        def attempt() -> None:
            error_code, message = self._ask_to_create(_REPLICAS, {"min.insync.replicas": "2"})
            if error_code is ErrorCode.invalid_replication_factor:
                error_code, message = self._ask_to_create(-1, {})
            if error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise KafkaError(error_code, f"topic {DECISIONS_TOPIC} could not be made: {message}")

        self._cluster.retry(f"making topic {DECISIONS_TOPIC}", attempt)

    def _ask_to_create(self, replicas: int, configs: dict[str, str]) -> tuple[ErrorCode, str | None]:
        wanted = {"cleanup.policy": "compact", "compression.type": "producer", **configs}
        request = CreateTopicsRequest(
            topics=(
                CreatableTopic(
                    name=DECISIONS_TOPIC,
                    num_partitions=_PARTITIONS,
                    replication_factor=replicas,
                    assignments=(),
                    configs=tuple(
                        CreatableTopicConfig(name=name, value=each) for name, each in wanted.items()
                    ),
                ),
            ),
            timeout=timedelta(milliseconds=self._cluster.config.request_timeout_ms),
        )
        broker_id, channel = self._cluster.any_channel()
        try:
            response = channel.request(request)
        except KafkaError:
            self._cluster.disconnect(broker_id)
            raise
        answer = response.topics[0]
        return answer.error_code, answer.error_message
