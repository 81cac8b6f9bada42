"""The assignor `uniform`: members differ by one partition at most, and keep their partitions if possible.

If all subscribe to the same topics, each member has a quota; it keeps its partitions within the quota, and
the others go to members below theirs. Members with a surplus partition have priority for the remainder of the
division.

Members with different subscriptions keep the partitions of topics they still subscribe to. Partitions without
an owner go, topic by topic, to the subscriber with the fewest partitions; topics with many partitions a
subscriber come first, since they leave the least choice. Then partitions move, topic by topic, from the
subscriber with the most to the one with the fewest, until those two differ by one at most. Rounds over all
topics are bounded: chains of overlapping subscriptions may end almost, not perfectly, balanced.

Equal input gives equal output, independent of the order of its mappings.

Source: Kafka's UniformAssignor, UniformHomogeneousAssignmentBuilder, UniformHeterogeneousAssignmentBuilder;
KIP-848.
"""

from collections import defaultdict
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.assignors.specification import (
    Assignment,
    GroupSpecification,
)

MAX_BALANCING_ROUNDS: Final = 16
"""As in Kafka: a round about halves the imbalance."""


def assign_heterogeneous(group: GroupSpecification) -> dict[str, Assignment]:
    work = _Work(group)
    work.assign_the_unassigned()
    work.balance()
    return work.assignments()


class _Work:
    """Owners and loads while an assignment is made; members are numbered in the order of their ids."""

    def __init__(self, group: GroupSpecification) -> None:
        self._group = group
        self._member_ids = sorted(group.members)
        self._loads = [0] * len(self._member_ids)
        self._subscribers: dict[UUID, list[int]] = defaultdict(list)
        for index, member_id in enumerate(self._member_ids):
            for topic_id in group.members[member_id].subscribed_topic_ids:
                self._subscribers[topic_id].append(index)
        self._topic_ids = sorted(self._subscribers, key=self._urgency)
        self._owners: dict[UUID, list[int | None]] = {
            topic_id: [None] * group.partition_counts[topic_id] for topic_id in self._topic_ids
        }
        for index, member_id in enumerate(self._member_ids):
            member = group.members[member_id]
            for topic_id, partitions in member.assignment.items():
                if topic_id in member.subscribed_topic_ids:
                    self._loads[index] += len(partitions)
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = index

    def _urgency(self, topic_id: UUID) -> tuple[float, int, UUID]:
        subscriber_count = len(self._subscribers[topic_id])
        return -self._group.partition_counts[topic_id] / subscriber_count, subscriber_count, topic_id

    def assign_the_unassigned(self) -> None:
        for topic_id in self._topic_ids:
            owners = self._owners[topic_id]
            unassigned = [partition for partition, owner in enumerate(owners) if owner is None]
            if unassigned:
                by_load = [(self._loads[index], index) for index in self._subscribers[topic_id]]
                heapify(by_load)
                for partition in unassigned:
                    load, index = heappop(by_load)
                    owners[partition] = index
                    self._loads[index] = load + 1
                    heappush(by_load, (load + 1, index))

    def balance(self) -> None:
        """Move partitions until no topic's subscribers differ by more than one, or the rounds are used up."""
        for _ in range(MAX_BALANCING_ROUNDS):
            moved = [self._balance_topic(topic_id) for topic_id in self._topic_ids]
            if not any(moved):
                return

    def _balance_topic(self, topic_id: UUID) -> bool:
        loads = self._loads
        subscribers = self._subscribers[topic_id]
        if max(loads[index] for index in subscribers) - min(loads[index] for index in subscribers) <= 1:
            return False
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = defaultdict(list)
        for partition, owner in enumerate(owners):
            assert owner is not None, "every partition has an owner by now"
            owned[owner].append(partition)
        fewest = [(loads[index], index) for index in subscribers]
        most = [(-loads[index], index) for index in owned]
        heapify(fewest)
        heapify(most)
        moved = False
        while most:
            negative_load, giver = heappop(most)
            if -negative_load != loads[giver]:
                # It received partitions since. Takers never rise above givers, so its turn may wait.
                heappush(most, (-loads[giver], giver))
                continue
            while fewest[0][0] != loads[fewest[0][1]]:
                _, index = heappop(fewest)
                heappush(fewest, (loads[index], index))
            least_load, taker = fewest[0]
            if loads[giver] - least_load <= 1:
                break
            partition = owned[giver].pop()
            owners[partition] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved = True
            if owned[giver]:
                heappush(most, (-loads[giver], giver))
        return moved

    def assignments(self) -> dict[str, Assignment]:
        """Return each member's assignment; an unchanged one is the same mapping as before."""
        partitions_of: list[dict[UUID, list[int]]] = [defaultdict(list) for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assert owner is not None, "every topic here has a subscriber"
                partitions_of[owner][topic_id].append(partition)
        assigned: dict[str, Assignment] = {}
        for member_id, partitions in zip(self._member_ids, partitions_of, strict=True):
            before = self._group.members[member_id].assignment
            now = {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}
            assigned[member_id] = before if now == before else now
        return assigned


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
