"""Offsets of a group without members: fetching them, and committing them in a transaction."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from sparklog.node.metadata.partition_for import CoordinatorType
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, Offset, ProducerEpoch, ProducerId, TopicPartition
from sparklog.user.client.coordinators import CoordinatorClient


class GroupOffset(NamedTuple):
    offset: Offset
    metadata: str


def committed_offsets(
    coordinators: CoordinatorClient,
    group_id: str,
    *,
    stable: bool,
    of: Sequence[TopicPartition] | None = None,
) -> Mapping[TopicPartition, GroupOffset]:
    """Return all offsets of a group, or those `of` partitions; `stable`: once no transaction can change them.

    A request for all offsets waits only for pending changes of existing ones, as in Kafka; a request for a
    partition also waits for its first one.

    Raises:
        ApiTimeoutError: the coordinator could not be asked, or a transaction stayed open, for
            `api_timeout_ms`.
        KafkaError: the request is refused.
    """
    topics = None
    if of is not None:
        by_topic = defaultdict[str, list[int]](list)
        for topic, partition in of:
            by_topic[topic].append(partition)
        topics = tuple(
            OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(each))
            for topic, each in by_topic.items()
        )
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),), require_stable=stable
    )
    response = coordinators.ask(
        CoordinatorType.GROUP, group_id, request, _fetch_error, doing=f"fetching the offsets of {group_id}"
    )
    if (error_code := _fetch_error(response)) is not ErrorCode.none:
        raise KafkaError(error_code, f"the offsets of group {group_id}")
    return {
        TopicPartition(topic.name, partition.partition_index): GroupOffset(
            partition.committed_offset, partition.metadata or ""
        )
        for topic in response.groups[0].topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


class OffsetOfTransaction:
    """A group's offset that is committed with a producer's transaction: a `Question`."""

    def __init__(
        self,
        coordinators: CoordinatorClient,
        group_id: str,
        producer: tuple[str, ProducerId, ProducerEpoch],
        topic_partition: TopicPartition,
        committed: GroupOffset,
    ) -> None:
        transactional_id, producer_id, producer_epoch = producer
        partition = TxnOffsetCommitRequestPartition(
            partition_index=topic_partition.partition,
            committed_offset=committed.offset,
            committed_metadata=committed.metadata,
        )
        self.request: Final = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=(TxnOffsetCommitRequestTopic(name=topic_partition.topic, partitions=(partition,)),),
        )
        self.error_code: ErrorCode | None = None
        """Result of the commit; None until it is known."""
        self._coordinators = coordinators
        self._group_id = group_id

    def broker_id(self) -> BrokerId:
        """Return the group's coordinator.

        Raises:
            KafkaError: there is none at present.
        """
        return self._coordinators.broker_of(CoordinatorType.GROUP, self._group_id)

    def hear(self, answer: Any | KafkaError) -> KafkaError | None:
        refusal = self._coordinators.heard(CoordinatorType.GROUP, self._group_id, answer, _commit_error)
        if refusal is None:
            self.error_code = _commit_error(answer)
        return refusal


def _fetch_error(response: Any) -> ErrorCode:
    group = response.groups[0]
    codes: list[ErrorCode] = [
        group.error_code,
        *(partition.error_code for topic in group.topics for partition in topic.partitions),
    ]
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


def _commit_error(response: Any) -> ErrorCode:
    code: ErrorCode = response.topics[0].partitions[0].error_code
    return code
