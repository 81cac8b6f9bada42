"""Whether a member of a consumer group may commit an offset: by its epoch, or by the partition's (KIP-1251).

A commit may be under way while the member's epoch rises. So an older epoch is good for a partition that the
member has had since: nobody else can have committed in between.

Source: Kafka's ConsumerGroup.validateOffsetCommit.
"""

from uuid import UUID

from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember
from sparklog.executor.coordinators.groups.machine.group import CommitValidation
from sparklog.protocol.errors import ErrorCode


def validate_commit(member: ConsumerMember, member_epoch: int) -> CommitValidation:
    """Say whether a member may commit with this epoch, and for which partitions."""
    if member_epoch == member.member_epoch:
        return ErrorCode.none
    refusal = ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
    if member_epoch > member.member_epoch:
        return refusal

    def validate_partition(topic: str, topic_id: UUID | None, partition: int) -> ErrorCode:
        assigned_in = None if topic_id is None else member.assignment_epoch(topic_id, partition)
        return ErrorCode.none if assigned_in is not None and member_epoch >= assigned_in else refusal

    return validate_partition
