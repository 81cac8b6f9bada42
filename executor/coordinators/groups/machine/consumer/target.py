"""A group's next target assignment: from members and topics, by an assignor, to records.

The captured state is immutable (members, images and assignments), so a thread computes a big assignment while
the group continues. Its result is applied as it is: members that have left are dropped, later members get
nothing yet, and the group epoch is higher by then, so that the next assignment follows.

Source: Kafka's TargetAssignmentBuilder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.assignors import (
    Assignment,
    Assignor,
    GroupSpecification,
    MemberSpecification,
)
from sparklog.executor.coordinators.groups.machine.assignors.specification import NOTHING
from sparklog.executor.coordinators.groups.machine.consumer import records
from sparklog.executor.coordinators.groups.machine.consumer.group import (
    ConsumerGroup,
    ResolvedRegularExpression,
    member_topics,
)
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.node.metadata.image import TopicsImage
from sparklog.protocol.types import TimestampMs

_MAX_SIZE_ON_THE_LOOP: Final = 2_000
"""Members and partitions together; about three milliseconds."""
_MAX_SUBSCRIPTIONS_ON_THE_LOOP: Final = 4_000
"""Sum of the members' subscribed topics; about five milliseconds."""


def may_assign(group: ConsumerGroup, assignment_interval_ms: int, wall_ms: TimestampMs) -> bool:
    """Whether the last target assignment is old enough; a group's first one never waits."""
    found_ms = group.assignment_timestamp_ms
    return found_ms == 0 or assignment_interval_ms == 0 or wall_ms >= found_ms + assignment_interval_ms


@dataclass(frozen=True, slots=True)
class TargetSearch:
    group_epoch: int
    members: Mapping[str, ConsumerMember]
    targets: Mapping[str, Assignment]
    """Target assignments of exactly these members."""
    resolved: Mapping[str, ResolvedRegularExpression]
    topics: TopicsImage
    assignor: Assignor

    def takes_long(self, partition_count: int) -> bool:
        """Whether a thread should compute it; the topics have `partition_count` partitions."""
        if len(self.members) + partition_count > _MAX_SIZE_ON_THE_LOOP:
            return True
        subscriptions = 0
        for member in self.members.values():
            meant = self.resolved.get(member.subscribed_topic_regex)
            subscriptions += len(member.subscribed_topic_names) + (0 if meant is None else len(meant.topics))
        return subscriptions > _MAX_SUBSCRIPTIONS_ON_THE_LOOP

    def find(self) -> dict[str, Assignment]:
        # Most members of a group have the same subscription: each is looked up once.
        topic_ids_of: dict[frozenset[str], frozenset[UUID]] = {}
        partition_counts = {}
        specifications = {}
        for member_id, member in self.members.items():
            names = member_topics(member, self.resolved)
            topic_ids = topic_ids_of.get(names)
            if topic_ids is None:
                found = [self.topics.by_name[name] for name in names if name in self.topics.by_name]
                partition_counts.update({topic.topic_id: len(topic.partitions) for topic in found})
                topic_ids = topic_ids_of[names] = frozenset(topic.topic_id for topic in found)
            specifications[member_id] = MemberSpecification(
                member.instance_id, topic_ids, self.targets.get(member_id, NOTHING)
            )
        return self.assignor(GroupSpecification(specifications, partition_counts))


def target_search(
    group: ConsumerGroup,
    group_epoch: int,
    updated: ConsumerMember | None,
    topics: TopicsImage,
    assignor: Assignor,
) -> TargetSearch:
    """Capture the group, with one member as it will be once this decision is replayed."""
    members = dict(group.members)
    targets = dict(group.targets)
    if updated is not None:
        replaced = group.static_member(updated.instance_id)
        if replaced is not None and replaced.member_id != updated.member_id:
            del members[replaced.member_id]
            targets[updated.member_id] = targets.pop(replaced.member_id, NOTHING)
        members[updated.member_id] = updated
    return TargetSearch(group_epoch, members, targets, dict(group.resolved), topics, assignor)


def target_records(
    group_id: str,
    search: TargetSearch,
    found: Mapping[str, Assignment],
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Assignment],
    wall_ms: TimestampMs,
) -> list[CoordinatorRecord]:
    """Return the records of the found assignment; `members` and `targets` may have changed since.

    A static member that has returned under another id meanwhile gets the assignment of its former self.
    """
    former_ids = {
        member.instance_id: member_id
        for member_id, member in search.members.items()
        if member.instance_id is not None
    }
    changed = []
    for member_id, member in members.items():
        target = found.get(member_id)
        if target is None:
            target = found.get(former_ids.get(member.instance_id or "", ""), NOTHING)
        before = targets.get(member_id)
        if before is not target and before != target:
            changed.append(records.target_assignment_record(group_id, member_id, target))
    return [*changed, records.assignment_epoch_record(group_id, search.group_epoch, wall_ms)]
