"""Groups for the tab: those in trouble first, with their lag.

A group's lag is the sum, over the partitions with a committed offset and a known high watermark, of the
difference between the two. Records below the log start offset, removed by retention or a client, do not
count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from sparklog.user.client.groups import CommittedOffset, GroupDescription, GroupMember, ListedGroup

_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Empty",
    "Stable",
    "Dead",
)
"""First the states in which a group with members does not read all partitions."""
_MOVING: Final = frozenset(_STATES[:4])

CommittedOffsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]


class Extent(NamedTuple):
    high_watermark: Offset
    log_start_offset: Offset = 0

    def lag(self, committed_offset: Offset) -> int:
        return max(0, self.high_watermark - max(committed_offset, self.log_start_offset))


Extents: TypeAlias = Mapping[TopicPartition, Extent]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A group in one line; None for values that its coordinator has not given."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str | None
    coordinator: BrokerId
    members: int | None
    partitions: int | None
    """The partitions with a committed offset."""
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A partition with a committed offset of the group, or assigned to a member."""

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
    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerId
    group_epoch: int | None
    assignment_epoch: int | None
    lag: int | None
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    """The largest lag first."""


def is_moving(state: str) -> bool:
    return state in _MOVING


def by_trouble(groups: Iterable[ListedGroup]) -> list[ListedGroup]:
    """Return groups by state, rebalancing ones first, then by name."""
    return sorted(groups, key=lambda group: (_rank(group.state), group.group_id))


def summaries(
    groups: Iterable[ListedGroup],
    described: Mapping[str, GroupDescription],
    committed: Mapping[str, CommittedOffsets],
    extents: Extents,
) -> tuple[GroupSummary, ...]:
    """Return the groups' summaries: by state in the order of the list, then the largest lag first."""
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
                lag=None if offsets is None else lag_of(offsets, extents),
            )
        )
    return tuple(sorted(made, key=lambda each: (_rank(each.state), -(each.lag or 0), each.group_id)))


def group_status(
    description: GroupDescription, coordinator: BrokerId, offsets: CommittedOffsets | None, extents: Extents
) -> GroupStatus:
    """Return the status of a group; `offsets` is None if unknown."""
    readers = {
        partition: member.member_id for member in description.members for partition in member.assignment or ()
    }
    committed = offsets or {}
    partitions = [
        _partition(each, committed.get(each), extents.get(each), readers.get(each))
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
        lag=lag_of(committed, extents),
        members=tuple(
            member._replace(
                assignment=None if member.assignment is None else tuple(sorted(member.assignment))
            )
            for member in sorted(description.members, key=lambda member: (member.client_id, member.member_id))
        ),
        partitions=tuple(partitions),
    )


def lag_of(offsets: CommittedOffsets, extents: Extents) -> int | None:
    """Return the lag of a group; None if no partition's is known.

    >>> at = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> offsets = {at[0]: CommittedOffset(7, None, ""), at[1]: CommittedOffset(9, None, "")}
    >>> lag_of(offsets, {at[0]: Extent(10)}), lag_of(offsets, {at[0]: Extent(10, log_start_offset=9)})
    (3, 1)
    """
    known = [extents[each].lag(committed.offset) for each, committed in offsets.items() if each in extents]
    return sum(known) if known else None


def _partition(
    each: TopicPartition, committed: CommittedOffset | None, extent: Extent | None, member_id: str | None
) -> GroupPartition:
    return GroupPartition(
        topic=each.topic,
        partition=each.partition,
        committed_offset=None if committed is None else committed.offset,
        leader_epoch=None if committed is None else committed.leader_epoch,
        high_watermark=None if extent is None else extent.high_watermark,
        lag=None if committed is None or extent is None else extent.lag(committed.offset),
        metadata="" if committed is None else committed.metadata,
        member_id=member_id,
    )


def _rank(state: str) -> int:
    # Unknown states come first.
    return _STATES.index(state) if state in _STATES else -1
