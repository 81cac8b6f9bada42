"""ConsumerGroupDescribe: a group as admins see it. Source: Kafka's ConsumerGroup.asDescribedGroup."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from kio.schema.consumer_group_describe.v1.response import Assignment, DescribedGroup, Member, TopicPartitions

from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember
from sparklog.executor.coordinators.groups.machine.consumer.settings import Settings
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.node.metadata.image import TopicsImage
from sparklog.protocol.errors import ErrorCode


def undescribed_group(group_id: str, error_code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def described_group(group_id: str, groups: Mapping[str, Group], settings: Settings) -> DescribedGroup:
    group = groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        message = (
            f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        )
        return undescribed_group(group_id, ErrorCode.group_id_not_found, message)
    topics = settings.image.topics
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(settings.default_assignor),
        members=tuple(_described_member(group, member, topics) for member in group.members.values()),
    )


def _described_member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        # The member may still read partitions pending revocation.
        assignment=_assignment((member.assigned_partitions, member.partitions_pending_revocation), topics),
        target_assignment=_assignment((group.targets.get(member.member_id, {}),), topics),
        member_type=1 if member.classic is None else 0,
    )


def _assignment(parts: Iterable[Mapping[UUID, Iterable[int]]], topics: TopicsImage) -> Assignment:
    partitions: dict[UUID, set[int]] = {}
    for part in parts:
        for topic_id, numbers in part.items():
            if topic_id in topics.by_id:
                partitions.setdefault(topic_id, set()).update(numbers)
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id,
                topic_name=topics.by_id[topic_id].name,
                partitions=tuple(sorted(numbers)),
            )
            for topic_id, numbers in partitions.items()
        )
    )
