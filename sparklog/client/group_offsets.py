"""Offsets of a group that has no members: looked for, committed in a transaction, and deleted with it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
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

from sparklog.client.coordinators import CoordinatorKind, Coordinators
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import Offset, ProducerEpoch, ProducerId, TopicPartition

__all__ = ["CommittedOffset", "commit_in_transaction", "committed_offsets", "delete_group"]


class CommittedOffset(NamedTuple):
    """An offset, and what whoever committed it wrote beside it."""

    offset: Offset
    metadata: str


def committed_offsets(
    coordinators: Coordinators, group_id: str, *, stable: bool, of: TopicPartition | None = None
) -> Mapping[TopicPartition, CommittedOffset]:
    """Return all offsets of a group, or that `of` a partition; if `stable`, when they can't change any more.

    Whoever asks for all waits for those that are to be changed, and not for one that would be the first of
    its partition, as in Kafka; who asks for that partition waits.

    Raises:
        ApiTimeoutError: the coordinator could not be asked, or a transaction stayed open, for
            `api_timeout_ms`.
        KafkaError: it is refused.
    """
    topics = None
    if of is not None:
        topics = (OffsetFetchRequestTopics(name=of.topic, partition_indexes=(of.partition,)),)
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),), require_stable=stable
    )
    response = coordinators.ask(
        CoordinatorKind.GROUP, group_id, request, _fetch_error, doing=f"asking for the offsets of {group_id}"
    )
    if (error_code := _fetch_error(response)) is not ErrorCode.none:
        raise KafkaError(error_code, f"the offsets of group {group_id}")
    return {
        TopicPartition(topic.name, partition.partition_index): CommittedOffset(
            partition.committed_offset, partition.metadata or ""
        )
        for topic in response.groups[0].topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def commit_in_transaction(
    coordinators: Coordinators,
    group_id: str,
    producer: tuple[str, ProducerId, ProducerEpoch],
    topic_partition: TopicPartition,
    committed: CommittedOffset,
) -> ErrorCode:
    """Commit an offset when a producer's transaction commits; errors are the caller's.

    Raises:
        ApiTimeoutError: the coordinator could not be asked for `api_timeout_ms`.
    """
    transactional_id, producer_id, producer_epoch = producer
    partition = TxnOffsetCommitRequestPartition(
        partition_index=topic_partition.partition,
        committed_offset=committed.offset,
        committed_metadata=committed.metadata,
    )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=(TxnOffsetCommitRequestTopic(name=topic_partition.topic, partitions=(partition,)),),
    )
    response = coordinators.ask(
        CoordinatorKind.GROUP, group_id, request, _commit_error, doing=f"committing an offset of {group_id}"
    )
    return _commit_error(response)


def delete_group(coordinators: Coordinators, group_id: str) -> ErrorCode:
    """Delete a group with its offsets; errors are the caller's.

    Raises:
        ApiTimeoutError: the coordinator could not be asked for `api_timeout_ms`.
    """
    request = DeleteGroupsRequest(groups_names=(group_id,))
    response = coordinators.ask(
        CoordinatorKind.GROUP, group_id, request, _delete_error, doing=f"deleting group {group_id}"
    )
    return _delete_error(response)


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


def _delete_error(response: Any) -> ErrorCode:
    code: ErrorCode = response.results[0].error_code
    return code
