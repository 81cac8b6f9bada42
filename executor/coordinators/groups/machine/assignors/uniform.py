"""The assignor `uniform`: members differ by one partition at most, and keep their partitions if possible.

If all subscribe to the same topics, each member has a quota; it keeps its partitions within the quota, and
the others go to members below theirs. Members with a surplus partition have priority for the remainder of the
division. For different subscriptions see `uniform_heterogeneous`.

Equal input gives equal output, independent of the order of its mappings.

Source: Kafka's UniformAssignor and UniformHomogeneousAssignmentBuilder; KIP-848.
"""

from itertools import islice
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.assignors.specification import (
    Assignment,
    GroupSpecification,
)
from sparklog.executor.coordinators.groups.machine.assignors.uniform_heterogeneous import assign_heterogeneous


def assign_uniform(group: GroupSpecification) -> dict[str, Assignment]:
    """Return the assignment of every member; an unchanged one is the same mapping as before.

    >>> from uuid import UUID
    >>> from sparklog.executor.coordinators.groups.machine.assignors.specification import MemberSpecification
    >>> topic = UUID(int=7)
    >>> had_all = MemberSpecification(None, {topic}, {topic: frozenset({0, 1, 2})})
    >>> members = {"a": MemberSpecification(None, {topic}), "b": had_all}
    >>> assigned = assign_uniform(GroupSpecification(members, {topic: 3}))
    >>> sorted(assigned["a"][topic]), sorted(assigned["b"][topic])
    ([2], [0, 1])
    """
    if not group.members:
        return {}
    return _assign_homogeneous(group) if group.homogeneous else assign_heterogeneous(group)


def _assign_homogeneous(group: GroupSpecification) -> dict[str, Assignment]:
    topic_ids = sorted(next(iter(group.members.values())).subscribed_topic_ids)
    unassigned = {topic_id: set(range(group.partition_counts[topic_id])) for topic_id in topic_ids}
    quota, odd_partitions = divmod(sum(map(len, unassigned.values())), len(group.members))

    kept: dict[str, Assignment] = {}
    wanting: list[tuple[str, int]] = []
    for index, member_id in enumerate(sorted(group.members)):
        room = quota + (odd_partitions > 0)
        kept[member_id], room = _keep(group.members[member_id].assignment, unassigned, room)
        if odd_partitions:
            # A member that does not fill its odd place leaves it to a later member, which may have to give up
            # a partition otherwise; the last members have no later one.
            if room and len(group.members) - index > odd_partitions:
                room -= 1
            else:
                odd_partitions -= 1
        if room:
            wanting.append((member_id, room))

    rest = ((topic_id, partition) for topic_id in topic_ids for partition in sorted(unassigned[topic_id]))
    for member_id, room in wanting:
        extended = {topic_id: set(partitions) for topic_id, partitions in kept[member_id].items()}
        for topic_id, partition in islice(rest, room):
            extended.setdefault(topic_id, set()).add(partition)
        kept[member_id] = {topic_id: frozenset(partitions) for topic_id, partitions in extended.items()}
    return kept


def _keep(assignment: Assignment, unassigned: dict[UUID, set[int]], room: int) -> tuple[Assignment, int]:
    """Remove a member's kept partitions from `unassigned`; return them, and its remaining room."""
    kept: dict[UUID, frozenset[int]] = {}
    for topic_id in sorted(assignment):
        if topic_id in unassigned and room:
            partitions = assignment[topic_id]
            if len(partitions) > room:
                partitions = frozenset(sorted(partitions)[:room])
            kept[topic_id] = partitions
            room -= len(partitions)
            unassigned[topic_id] -= partitions
    return (assignment if kept == assignment else kept), room
