"""Builders of a consumer group's records. Source: Kafka's GroupCoordinatorRecordHelpers.

Names and partitions are sorted, so that equal states have equal bytes.
"""

from collections.abc import Iterable, Sequence

from sparklog.executor.coordinators.groups.machine.assignors import Assignment
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember, OwnedPartitions
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.executor.coordinators.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)
from sparklog.protocol.types import Offset, TimestampMs


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        ),
    )


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash),
    )


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=tuple(
                TargetTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(target[topic_id])))
                for topic_id in sorted(target)
            )
        ),
    )


def assignment_epoch_record(
    group_id: str, assignment_epoch: int, timestamp_ms: TimestampMs
) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms
        ),
    )


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_current(member.assigned_partitions),
            partitions_pending_revocation=_current(member.partitions_pending_revocation),
        ),
    )


def regular_expression_record(
    group_id: str, regex: str, topics: Iterable[str], version: Offset, timestamp_ms: TimestampMs
) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(topics)), version=version, timestamp=timestamp_ms
        ),
    )


def regular_expression_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None
    )


def member_tombstones(group_id: str, member_id: str) -> Sequence[CoordinatorRecord]:
    return [
        CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(
    group_id: str, member_ids: Sequence[str], regexes: Sequence[str]
) -> Sequence[CoordinatorRecord]:
    """Return a group's tombstones, in the order that Kafka's coordinator requires at replay."""
    return [
        *(
            CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), None)
            for one in member_ids
        ),
        *(
            CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), None)
            for one in member_ids
        ),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(
            CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=one), None)
            for one in member_ids
        ),
        *(regular_expression_tombstone(group_id, regex) for regex in regexes),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _current(owned: OwnedPartitions) -> tuple[CurrentTopicPartitions, ...]:
    return tuple(
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=tuple(sorted(owned[topic_id])),
            assignment_epochs=tuple(owned[topic_id][partition] for partition in sorted(owned[topic_id])),
        )
        for topic_id in sorted(owned)
    )
