"""Offsets of partitions: the first, the next readable one, the first at or after a timestamp."""

from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from kio.schema.list_offsets.v7 import request as list_offsets_v7
from kio.schema.list_offsets.v7.response import ListOffsetsPartitionResponse
from kio.schema.list_offsets.v9 import request as list_offsets_v9

from sparklog.node.calling.list_offsets_request import AskedOffset, list_offsets_request
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicPartition
from sparklog.user.client.broker_requests import Answers, ask_brokers
from sparklog.user.client.cluster_client import ClusterClient


class SpecialOffset(IntEnum):
    """Special values of ListOffsets in place of a timestamp."""

    LATEST = -1
    """The high watermark; the last stable offset under read_committed."""
    EARLIEST = -2
    """The log start offset."""
    EARLIEST_LOCAL = -4
    """The first offset that is on the leader's disk (KIP-405)."""
    LATEST_TIERED = -5
    """The last offset that is in the tier (KIP-1005)."""


OffsetQuery: TypeAlias = SpecialOffset | TimestampMs


class ListedOffset(NamedTuple):
    """A leader's answer; `offset` None means that no record has such a timestamp."""

    offset: Offset | None
    leader_epoch: LeaderEpoch | None


def list_offsets(
    cluster: ClusterClient, queries: Mapping[TopicPartition, OffsetQuery], *, read_committed: bool = False
) -> dict[TopicPartition, ListedOffset]:
    """Ask the partitions' leaders, all brokers at once, until each has answered.

    Raises:
        ApiTimeoutError: some partition had no leader, or it did not answer, within `api_timeout_ms`.
        KafkaError: a partition does not exist, or the request is refused.
    """
    listed: dict[TopicPartition, ListedOffset] = {}

    def attempt() -> dict[TopicPartition, ListedOffset]:
        remaining = {each: query for each, query in queries.items() if each not in listed}
        failure = _ask_leaders(cluster, remaining, read_committed=read_committed, listed=listed)
        if failure is not None:
            raise failure
        return listed

    return cluster.retry("listing offsets", attempt)


def high_watermarks(
    cluster: ClusterClient, leaders: Mapping[TopicPartition, BrokerId]
) -> dict[TopicPartition, Offset]:
    """Ask presumed leaders for high watermarks, all at once and once; those without an answer are missing."""
    return _ask_once(cluster, leaders, SpecialOffset.LATEST)


def log_start_offsets(
    cluster: ClusterClient, leaders: Mapping[TopicPartition, BrokerId]
) -> dict[TopicPartition, Offset]:
    """Ask presumed leaders for log start offsets, as `high_watermarks` does."""
    return _ask_once(cluster, leaders, SpecialOffset.EARLIEST)


def last_tiered_offsets(
    cluster: ClusterClient, leaders: Mapping[TopicPartition, BrokerId]
) -> dict[TopicPartition, Offset | None]:
    """Ask presumed leaders for the last offsets in the tier, as `high_watermarks` does.

    None stands for a retriable error, as of a leader that does not know its tier yet, and for no answer.
    Partitions without any are missing, and those of brokers older than Kafka 3.9, which refuse the question.
    """
    answers = _answers(cluster, leaders, SpecialOffset.LATEST_TIERED)
    silent = {
        broker_id
        for broker_id, failure in answers.failures.items()
        if failure.error_code is not ErrorCode.unsupported_version
    }
    last_tiered: dict[TopicPartition, Offset | None] = dict.fromkeys(
        each for each, broker_id in leaders.items() if broker_id in silent
    )
    for each, answer in _by_partition(answers).items():
        if answer.error_code.retriable:
            last_tiered[each] = None
        elif answer.error_code is ErrorCode.none and answer.offset >= 0:
            last_tiered[each] = answer.offset
    return last_tiered


def local_log_start_offsets(
    cluster: ClusterClient, leaders: Mapping[TopicPartition, BrokerId]
) -> dict[TopicPartition, Offset]:
    """Ask presumed leaders for the first offsets on their disks, as `high_watermarks` does."""
    return _ask_once(cluster, leaders, SpecialOffset.EARLIEST_LOCAL)


def _ask_once(
    cluster: ClusterClient, leaders: Mapping[TopicPartition, BrokerId], query: SpecialOffset
) -> dict[TopicPartition, Offset]:
    return {
        each: answer.offset
        for each, answer in _by_partition(_answers(cluster, leaders, query)).items()
        if answer.error_code is ErrorCode.none and answer.offset >= 0
    }


def _answers(
    cluster: ClusterClient, leaders: Mapping[TopicPartition, BrokerId], query: SpecialOffset
) -> Answers:
    schema = _schema_of(query)
    wanted: defaultdict[BrokerId, list[AskedOffset]] = defaultdict(list)
    for partition, leader in leaders.items():
        wanted[leader].append(AskedOffset(*partition, int(query)))
    return ask_brokers(
        cluster,
        {broker_id: list_offsets_request(asked, schema=schema) for broker_id, asked in wanted.items()},
    )


def _by_partition(answers: Answers) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic.name, each.partition_index): each
        for response in answers.responses.values()
        for topic in response.topics
        for each in topic.partitions
    }


def _schema_of(query: SpecialOffset) -> Any:
    """Return the version that knows the query; the two differ in their numbers alone."""
    is_of_tier = query in (SpecialOffset.LATEST_TIERED, SpecialOffset.EARLIEST_LOCAL)
    return list_offsets_v9 if is_of_tier else list_offsets_v7


def _ask_leaders(
    cluster: ClusterClient,
    queries: Mapping[TopicPartition, OffsetQuery],
    *,
    read_committed: bool,
    listed: dict[TopicPartition, ListedOffset],
) -> KafkaError | None:
    """Add the answers to `listed`; return one of the retriable failures, if there was any.

    All answers are received even after a failure: a leftover one would be taken for the next request's.
    """
    failure: KafkaError | None = None
    final: KafkaError | None = None
    by_broker: defaultdict[BrokerId, list[AskedOffset]] = defaultdict(list)
    for topic_partition, query in queries.items():
        leader = cluster.leader(topic_partition)
        by_broker[leader.broker_id].append(AskedOffset(*topic_partition, int(query), leader.leader_epoch))
    asked = []
    for broker_id, offsets in by_broker.items():
        request = list_offsets_request(offsets, schema=list_offsets_v7, read_committed=read_committed)
        try:
            cluster.channel(broker_id).send(request)
            asked.append(broker_id)
        except KafkaError as error:
            failure = error
            cluster.disconnect(broker_id)
    for broker_id in asked:
        try:
            response = cluster.channel(broker_id).receive()
        except KafkaError as error:
            failure = error
            cluster.disconnect(broker_id)
            continue
        for topic in response.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                error_or_none = _record(topic_partition, partition, listed)
                if error_or_none is None:
                    continue
                if error_or_none.retriable:
                    failure = error_or_none
                    cluster.forget_leader(topic_partition)
                else:
                    final = error_or_none
    if final is not None:
        raise final
    return failure


def _record(
    topic_partition: TopicPartition,
    answer: ListOffsetsPartitionResponse,
    listed: dict[TopicPartition, ListedOffset],
) -> KafkaError | None:
    if answer.error_code is ErrorCode.none:
        listed[topic_partition] = ListedOffset(
            answer.offset if answer.offset >= 0 else None,
            answer.leader_epoch if answer.leader_epoch >= 0 else None,
        )
        return None
    return KafkaError(answer.error_code, f"{topic_partition}: its leader could not list the offset")
