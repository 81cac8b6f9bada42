"""The assignor `range`: contiguous partitions of each topic, one range a subscriber.

Members whose topics have equally many partitions get the same numbers of each, as joins need it. Static
members come first, by instance id, so that dynamic ones that come and go move them little. It ignores the
former assignment: members keep partitions because their order is stable.

Source: Kafka's RangeAssignor; KIP-848.
"""

from collections import Counter
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.assignors.specification import (
    Assignment,
    GroupSpecification,
)


def assign_range(group: GroupSpecification) -> dict[str, Assignment]:
    """Return the assignment of every member.

    >>> from uuid import UUID
    >>> from sparklog.executor.coordinators.groups.machine.assignors.specification import MemberSpecification
    >>> topic = UUID(int=7)
    >>> members = {name: MemberSpecification(None, {topic}) for name in ("b", "a")}
    >>> assigned = assign_range(GroupSpecification(members, {topic: 3}))
    >>> sorted(assigned["a"][topic]), sorted(assigned["b"][topic])
    ([0, 1], [2])
    """
    members = group.members
    subscriber_counts = Counter(
        topic_id for member in members.values() for topic_id in member.subscribed_topic_ids
    )
    range_starts = dict.fromkeys(subscriber_counts, 0)
    members_with_one_more = {
        topic_id: group.partition_counts[topic_id] % count for topic_id, count in subscriber_counts.items()
    }
    assigned: dict[str, Assignment] = {}
    for member_id in sorted(members, key=lambda name: _order(name, members[name].instance_id)):
        assignment: dict[UUID, frozenset[int]] = {}
        for topic_id in members[member_id].subscribed_topic_ids:
            start = range_starts[topic_id]
            size = group.partition_counts[topic_id] // subscriber_counts[topic_id]
            if members_with_one_more[topic_id]:
                members_with_one_more[topic_id] -= 1
                size += 1
            range_starts[topic_id] = start + size
            if size:
                assignment[topic_id] = frozenset(range(start, start + size))
        assigned[member_id] = assignment
    return assigned


def _order(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)
