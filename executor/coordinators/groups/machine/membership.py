"""Interface between `GroupMachine` and a rebalance protocol: the classic one, or the consumer one of KIP-848.

The machine has one `Membership` for each protocol. It finds a group by its id, and calls the membership of
the group's type. All share the partition's groups: a group of one type replaces an empty one of another by
tombstones of the older in the same batch as its own first record.

Durable state changes in `replay` alone; so a group is created, changes its type and is deleted when its
record is replayed. Subsequent work of the same request is scheduled with `Timers.soon`.

Source: Kafka's GroupMetadataManager, which is all of this in one class.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from sparklog.executor.coordinators.groups.machine.group import Group, GroupType
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode

Replay: TypeAlias = Callable[[Any, Any | None], None]
"""(key, value or None for a tombstone): apply the record to durable state."""
MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether the client may describe a topic; called outside of the loop."""


class JoinGroup(NamedTuple):
    group_id: str
    member_id: str
    """Empty for a new member."""
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Assignors by name, each with its subscription, in the member's order of preference."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str
    """The id for a member without one; generated outside, for machines have no randomness."""
    needs_known_member_id: bool
    """Whether it can receive its id before it joins (KIP-394, version 4 and newer)."""
    can_skip_assignment: bool
    """Whether a static leader can be asked to keep the assignment (KIP-814, version 9)."""
    may_describe: MayDescribe | None = None
    """Topics that it may describe; None for all."""


class SyncGroup(NamedTuple):
    """A member requests its assignment; the leader brings all assignments."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Heartbeat(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """A member by member id, or by instance id alone when an admin removes a static member."""

    member_id: str
    group_instance_id: str | None


class LeaveGroup(NamedTuple):
    group_id: str
    members: tuple[LeavingMember, ...]


class Membership(Protocol):
    """One rebalance protocol, for all groups of its type in a partition."""

    @property
    def group_type(self) -> GroupType: ...

    @property
    def replays(self) -> Mapping[type[Any], Replay]:
        """Functions that replay this protocol's records, by key type."""

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]: ...

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        """React to changed topics, partitions and group configurations."""

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        """Restore volatile state after a decision that was not appended."""

    def join_group(self, request: JoinGroup, token: Any, now: Now) -> CoordinatorResult:
        """Let a member of the classic protocol join; `token` may be answered later."""

    def sync_group(self, request: SyncGroup, token: Any, now: Now) -> CoordinatorResult:
        """Return the assignment of a classic member; `token` may be answered later."""

    def heartbeat(self, request: Heartbeat, token: Any, now: Now) -> CoordinatorResult: ...

    def leave_group(self, request: LeaveGroup, token: Any, now: Now) -> CoordinatorResult: ...

    def offsets_committed(self, group: Group, member_id: str, now: Now) -> None: ...
