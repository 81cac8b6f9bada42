"""Groups as the tab shows them: those that need somebody first, and how far each is behind.

A group's lag is what it has not committed of what there is: the sum, over the partitions that it has
committed something for and whose high watermark is known, of what lies between the two.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sparklog.client.groups import CommittedOffset, GroupDescription, ListedGroup
from sparklog.types import BrokerId, LeaderEpoch, Offset, TopicPartition

__all__ = [
    "CommittedOffsets",
    "GroupMemberStatus",
    "GroupPartition",
    "GroupStatus",
    "GroupSummary",
    "by_trouble",
    "group_status",
    "is_moving",
    "lag_of",
    "summaries",
]

_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Empty",
    "Stable",
    "Dead",
)
"""Those first in which a group reads nothing, or not all, and is meant to."""
_MOVING: Final = frozenset(_STATES[:4])

CommittedOffsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]
Ends: TypeAlias = Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A group in one line; None is what its coordinator has not said."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str | None
    coordinator: BrokerId
    members: int | None
    partitions: int | None
    """How many it has committed something for."""
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberStatus:
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int | None
    subscription: str | None
    assignment: tuple[TopicPartition, ...] | None
    """None for one that is not a consumer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A partition that a group has committed something for, or that a member of it is assigned."""

    topic: str
    partition: int
    committed_offset: Offset | None
    leader_epoch: LeaderEpoch | None
    high_watermark: Offset | None
    lag: int | None
    metadata: str
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """All that is known of a group."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerId
    group_epoch: int | None
    assignment_epoch: int | None
    lag: int | None
    members: tuple[GroupMemberStatus, ...]
    partitions: tuple[GroupPartition, ...]
    """Those furthest behind first."""


def is_moving(state: str) -> bool:
    """Whether a group is in between: partitions go from one member to another."""
    return state in _MOVING


def by_trouble(groups: Iterable[ListedGroup]) -> list[ListedGroup]:
    """Return groups by their state, in which those that are in between come first, and by name."""
    return sorted(groups, key=lambda group: (_rank(group.state), group.group_id))


def summaries(
    groups: Iterable[ListedGroup],
    described: Mapping[str, GroupDescription],
    committed: Mapping[str, CommittedOffsets],
    ends: Ends,
) -> tuple[GroupSummary, ...]:
    """Return groups in one line each: by state as they are listed, the furthest behind of a state first."""
    made = []
    for group in groups:
        description, offsets = described.get(group.group_id), committed.get(group.group_id)
        made.append(
            GroupSummary(
                group_id=group.group_id,
                group_type=group.group_type.lower(),
                state=group.state,
                protocol_type=group.protocol_type,
                assignor=None if description is None else description.assignor,
                coordinator=group.coordinator,
                members=None if description is None else len(description.members),
                partitions=None if offsets is None else len(offsets),
                lag=None if offsets is None else lag_of(offsets, ends),
            )
        )
    return tuple(sorted(made, key=lambda each: (_rank(each.state), -(each.lag or 0), each.group_id)))


def group_status(
    description: GroupDescription, coordinator: BrokerId, offsets: CommittedOffsets | None, ends: Ends
) -> GroupStatus:
    """Return everything about a group; `offsets` None is what nobody has said."""
    readers = {
        partition: member.member_id for member in description.members for partition in member.assignment or ()
    }
    committed = offsets or {}
    partitions = [
        _partition(each, committed.get(each), ends.get(each), readers.get(each))
        for each in committed.keys() | readers.keys()
    ]
    partitions.sort(key=lambda each: (-(each.lag or 0), each.topic, each.partition))
    return GroupStatus(
        group_id=description.group_id,
        group_type=description.group_type,
        state=description.state,
        protocol_type=description.protocol_type,
        assignor=description.assignor,
        coordinator=coordinator,
        group_epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
        lag=lag_of(committed, ends),
        members=tuple(
            GroupMemberStatus(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_epoch=member.member_epoch,
                subscription=member.subscription,
                assignment=None if member.assignment is None else tuple(sorted(member.assignment)),
            )
            for member in sorted(description.members, key=lambda member: (member.client_id, member.member_id))
        ),
        partitions=tuple(partitions),
    )


def lag_of(offsets: CommittedOffsets, ends: Ends) -> int | None:
    """Return how many records a group has not committed; None if of no partition that is known.

    >>> at = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> lag_of({at[0]: CommittedOffset(7, None, ""), at[1]: CommittedOffset(9, None, "")}, {at[0]: 10})
    3
    """
    known = [max(0, ends[each] - committed.offset) for each, committed in offsets.items() if each in ends]
    return sum(known) if known else None


def _partition(
    each: TopicPartition, committed: CommittedOffset | None, end: Offset | None, member_id: str | None
) -> GroupPartition:
    return GroupPartition(
        topic=each.topic,
        partition=each.partition,
        committed_offset=None if committed is None else committed.offset,
        leader_epoch=None if committed is None else committed.leader_epoch,
        high_watermark=end,
        lag=None if committed is None or end is None else max(0, end - committed.offset),
        metadata="" if committed is None else committed.metadata,
        member_id=member_id,
    )


def _rank(state: str) -> int:
    # One that nobody here knows is looked at first.
    return _STATES.index(state) if state in _STATES else -1
