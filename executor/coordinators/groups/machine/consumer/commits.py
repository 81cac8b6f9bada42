"""Validation of a consumer group member's commit, by its epoch or by the partition's (KIP-1251).

A commit may be in flight while the member's epoch rises. So an older epoch is valid for a partition that the
member has owned since: no other member can have committed in between.

Source: Kafka's ConsumerGroup.validateOffsetCommit.
"""

from uuid import UUID

from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember
from sparklog.executor.coordinators.groups.machine.group import CommitValidation
from sparklog.protocol.errors import ErrorCode


def validate_commit(member: ConsumerMember, member_epoch: int) -> CommitValidation:
    if member_epoch == member.member_epoch:
        return ErrorCode.none
    refusal = ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
    if member_epoch > member.member_epoch:
        return refusal

    def validate_partition(topic: str, topic_id: UUID | None, partition: int) -> ErrorCode:
        assigned_in = None if topic_id is None else member.assignment_epoch(topic_id, partition)
        return ErrorCode.none if assigned_in is not None and member_epoch >= assigned_in else refusal

    return validate_partition
