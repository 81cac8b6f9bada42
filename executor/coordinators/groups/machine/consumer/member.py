"""A member of a consumer group: its metadata and its partitions. Immutable.

A member's epoch is that of the target assignment it has been taken to. Its state tells why it does not have
the newest one:

    STABLE                  it has exactly the target of its epoch
    UNREVOKED_PARTITIONS    it has to give up partitions, and stays in its epoch until it reports that
    UNRELEASED_PARTITIONS   it is in the newest epoch, and waits for partitions that others still own

It owns the assigned partitions and those pending revocation, which it may still be reading.

Source: Kafka's ConsumerGroupMember and MemberState.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from sparklog.executor.coordinators.records.consumer_offsets import ClassicMemberMetadata

LEAVE_GROUP_MEMBER_EPOCH: Final = -1
"""The epoch with which a member leaves."""
LEAVE_GROUP_STATIC_MEMBER_EPOCH: Final = -2
"""The epoch with which a static member leaves temporarily: it keeps its partitions for a session."""

OwnedPartitions: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Topic id to partition to the epoch in which the member was assigned it."""

NO_PARTITIONS: Final[OwnedPartitions] = MappingProxyType({})


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """Written by a newer coordinator; the member has to rejoin."""

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    """Empty for none."""
    server_assignor: str | None = None
    assigned_partitions: OwnedPartitions = field(default_factory=lambda: NO_PARTITIONS)
    partitions_pending_revocation: OwnedPartitions = field(default_factory=lambda: NO_PARTITIONS)
    classic: ClassicMemberMetadata | None = None
    """Metadata of a member of the classic protocol, else None."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has exactly the target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """Return the epoch in which an owned partition was assigned to it; None if it does not own it."""
        for owned in (self.assigned_partitions, self.partitions_pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
