"""The decisions' topic: compacted, in the target cluster, created on first use.

A decision's record is appended in its decider's transaction with sequence 0: in version 2 of transactions
each transaction has its own epoch. It is found by reading its partition from the earliest offset that it can
have, or from the start: compaction keeps that short.
"""

import logging
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from sparklog.node.clocks import wall_clock_ms
from sparklog.node.metadata.partition_for import partition_for
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import BrokerId, Offset, TopicPartition
from sparklog.user.client.aborted import without_aborted
from sparklog.user.client.broker_requests import ask_until_answered
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import FetchConfig
from sparklog.user.client.errors import UnknownTopicError
from sparklog.user.client.fetching import PartitionFetcher
from sparklog.user.client.offsets import SpecialOffset, list_offsets
from sparklog.user.sink.machine.decisions import Decision, IndexEntry, Position
from sparklog.user.sink.machine.errors import UnreadableDecisionError
from sparklog.user.sink.machine.names import DECISIONS_TOPIC, SinkId
from sparklog.user.sink.machine.steps import DeciderStamp

logger = logging.getLogger(__name__)

_PARTITIONS: Final = 8
_REPLICAS: Final = 3
_COMPRESSED_FROM_BYTES: Final = 4_096
"""Size from which a decision is compressed: the ids of many tasks have long common prefixes."""
_FETCH: Final = FetchConfig(read_committed=True)


class DecisionsTopic:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def partition_of(self, sink: SinkId) -> TopicPartition:
        """Return the partition of a sink's decisions; create the topic if it is missing.

        Raises:
            KafkaError: it can't be created.
        """
        return self.partitions_of(sink)[0]

    def partitions_of(self, sink: SinkId) -> list[TopicPartition]:
        """Return the partition of a sink's decisions, then its former partitions, latest first.

        A topic as created here has one; if it was given more partitions since, each earlier count maps to a
        former one.

        Raises:
            KafkaError: the topic can't be created.
        """
        try:
            topic = self._cluster.topic(DECISIONS_TOPIC, timeout_ms=0)
        except UnknownTopicError:
            self._create()
            topic = self._cluster.topic(DECISIONS_TOPIC)
        count = topic.partition_count
        counts = [count] if count == _PARTITIONS else range(count, 0, -1)
        partitions = dict.fromkeys(partition_for(sink.text, each) for each in counts)
        return [TopicPartition(DECISIONS_TOPIC, each) for each in partitions]

    def appending(self, sink: SinkId, decider: DeciderStamp, decision: Decision) -> "AppendedRecord":
        """Return the question that appends a decision's record in the decider's transaction.

        Raises:
            KafkaError: the topic can't be made.
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
        return AppendedRecord(self._cluster, self.partition_of(sink), batch, sink.decider_id)

    def forget(self, sink: SinkId) -> None:
        """Write the tombstone of a sink's decision.

        Raises:
            ApiTimeoutError: it could not be appended within `api_timeout_ms`.
        """
        tombstone = SimpleRecord(sink.text.encode(), None, timestamp_ms=wall_clock_ms())
        appended = AppendedRecord(self._cluster, self.partition_of(sink), build_batch([tombstone]), None)
        ask_until_answered(self._cluster, [appended], doing="forgetting a decision")

    def find(self, sink: SinkId, since: Position, entry: IndexEntry) -> tuple[Position, Decision]:
        """Return the decision of an index entry and its position, which is `since` or later.

        The caller is the current decider, so no later decision exists.

        Raises:
            UnreadableDecisionError: it is missing, or of another version.
            KafkaError: the partition can't be read.
        """
        topic_partition = TopicPartition(DECISIONS_TOPIC, since.partition)

        def look() -> tuple[Position, Decision]:
            ends = self._ends(topic_partition)
            for offset, value in reversed(self._records(sink, topic_partition, since.offset, ends.stable)):
                decision = None if value is None else Decision.decode(value)
                if decision is not None and decision.entry == entry._replace(over_run_ids=()):
                    return Position(since.partition, offset), decision
            ends.check_nothing_open()
            raise UnreadableDecisionError(f"it is not in {topic_partition} from offset {since.offset} on")

        return self._cluster.retry("reading a decision", look)

    def scan(self, sink: SinkId) -> tuple[Position, Decision] | None:
        """Return a sink's last decision by reading all committed records of its partitions.

        The caller is the current decider.

        Raises:
            UnreadableDecisionError: it is of another version.
            KafkaError: the partition can't be read.
        """
        for topic_partition in self.partitions_of(sink):
            records = self._committed(sink, topic_partition)
            if records:
                offset, value = records[-1]
                decided = None if value is None else Decision.decode(value)
                return None if decided is None else (Position(topic_partition.partition, offset), decided)
        return None

    def _committed(self, sink: SinkId, topic_partition: TopicPartition) -> list[tuple[Offset, bytes | None]]:
        def stable_end() -> Offset:
            ends = self._ends(topic_partition)
            ends.check_nothing_open()
            return ends.stable

        end = self._cluster.retry("finding the end of decisions", stable_end)
        return self._records(sink, topic_partition, 0, end)

    def _ends(self, topic_partition: TopicPartition) -> "_Ends":
        """Return both ends; the log end is listed first, so commits in between do not look open."""

        def end(*, read_committed: bool) -> Offset:
            query = {topic_partition: SpecialOffset.LATEST}
            found = list_offsets(self._cluster, query, read_committed=read_committed)[topic_partition].offset
            assert found is not None, "every partition has an end"
            return found

        return _Ends(topic_partition, end(read_committed=False), end(read_committed=True))

    def _records(
        self, sink: SinkId, topic_partition: TopicPartition, first: Offset, end: Offset
    ) -> list[tuple[Offset, bytes | None]]:
        """Return the offset and value of a sink's committed records."""
        start = list_offsets(self._cluster, {topic_partition: SpecialOffset.EARLIEST})[topic_partition].offset
        assert start is not None, "every partition has a start"
        first = max(first, start)
        key = sink.text.encode()
        found = []
        for fetched in PartitionFetcher(self._cluster, _FETCH, topic_partition, first, end):
            records = without_aborted(fetched.records, fetched.aborted_transactions)
            for position, header in iterate_headers(memoryview(records)):
                if header.is_control:
                    continue
                for record in read_records(records, header, position):
                    if record.key == key and record.offset is not None and first <= record.offset < end:
                        found.append((record.offset, record.value))
        return found

    def _create(self) -> None:
        def attempt() -> None:
            error_code, message = self._ask_to_create(_REPLICAS, {"min.insync.replicas": "2"})
            if error_code is ErrorCode.invalid_replication_factor:
                error_code, message = self._ask_to_create(-1, {})
            if error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise KafkaError(error_code, f"topic {DECISIONS_TOPIC} could not be created: {message}")

        self._cluster.retry(f"creating topic {DECISIONS_TOPIC}", attempt)

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
        answer = self._cluster.ask_any(request).topics[0]
        return answer.error_code, answer.error_message


class _Ends(NamedTuple):
    """Log end offset and last stable offset of a partition of decisions."""

    topic_partition: TopicPartition
    end: Offset
    stable: Offset
    """All transactions below this offset have ended."""

    def check_nothing_open(self) -> None:
        """Check that no open transaction of another sink hides records.

        Raises:
            KafkaError: UNSTABLE_OFFSET_COMMIT, which is retriable.
        """
        if self.stable < self.end:
            raise KafkaError(ErrorCode.unstable_offset_commit, f"{self.topic_partition} has no stable end")


class AppendedRecord:
    """Append of a batch of one record: a `Question` to the partition's leader."""

    def __init__(
        self,
        cluster: ClusterClient,
        topic_partition: TopicPartition,
        batch: bytes,
        transactional_id: str | None,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.request: Final = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout=timedelta(milliseconds=cluster.config.request_timeout_ms),
            topic_data=(
                TopicProduceData(
                    name=topic_partition.topic,
                    partition_data=(PartitionProduceData(index=topic_partition.partition, records=batch),),
                ),
            ),
        )
        self.outcome: Offset | ErrorCode | None = None
        """Offset of the record, or the error; None until the leader answers."""
        self._cluster = cluster

    def broker_id(self) -> BrokerId:
        """Return the partition's leader.

        Raises:
            KafkaError: there is none at present.
        """
        return self._cluster.leader(self.topic_partition).broker_id

    def hear(self, answer: Any | KafkaError) -> KafkaError | None:
        """Take in the leader's answer; return an error if the question has to be repeated."""
        if isinstance(answer, KafkaError):
            return answer
        row = answer.responses[0].partition_responses[0]
        if row.error_code is ErrorCode.none:
            self.outcome = row.base_offset
            return None
        error = KafkaError(row.error_code, row.error_message or f"{self.topic_partition} took no decision")
        if not error.retriable:
            self.outcome = error.error_code
            return None
        self._cluster.forget_leader(self.topic_partition)
        return error
