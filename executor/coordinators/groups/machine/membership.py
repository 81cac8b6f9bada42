"""The seam between `GroupMachine` and a rebalance protocol: the classic one, the consumer one of KIP-848.

The machine has one `Membership` for each protocol. It finds a group by its id, and asks the membership of the
group's type. All share the partition's groups: a group of one type takes the place of an empty one of another
by tombstones of the older in the same batch as its own first record.

Durable state changes in `replay` alone; so a group comes into being, changes its type and goes when its
record is replayed. What happens after that, in the same request, is scheduled with `Timers.soon`.

Source: Kafka's GroupMetadataManager, which is all of this in one class.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from sparklog.executor.coordinators.groups.machine.group import Group, GroupType
from sparklog.executor.coordinators.machine.decision import Decision, Now
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode

Replay: TypeAlias = Callable[[Any, Any | None], None]
"""(key, value or None for a tombstone): make durable state what the record says."""
MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether whoever asks may describe a topic; called beside the loop."""


class JoinGroup(NamedTuple):
    """A member of the classic protocol asks to join, or to join again."""

    group_id: str
    member_id: str
    """Empty: it has none yet."""
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """What it can speak, as it prefers it: assignors by name, each with its subscription."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str
    """Its id from now on if it has none; made outside, for machines have no randomness."""
    needs_known_member_id: bool
    """Whether it can be told its id first (KIP-394, version 4 and newer)."""
    can_skip_assignment: bool
    """Whether it can be told, as a static leader, to leave the assignment as it is (KIP-814, version 9)."""
    may_describe: MayDescribe | None = None
    """Which topics it may know of; None: of all."""


class SyncGroup(NamedTuple):
    """A member asks what it is assigned; the leader brings all assignments."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Heartbeat(NamedTuple):
    """A member of the classic protocol lives."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """Who leaves, by member id, or, when an admin removes a static member, by instance id alone."""

    member_id: str
    group_instance_id: str | None


class LeaveGroup(NamedTuple):
    """Members leave, or are removed."""

    group_id: str
    members: tuple[LeavingMember, ...]


class Membership(Protocol):
    """What one rebalance protocol does for all groups of its type in a partition."""

    @property
    def group_type(self) -> GroupType:
        """The type of its groups."""

    @property
    def replays(self) -> Mapping[type[Any], Replay]:
        """What replays the records of each key type that is this protocol's."""

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[Decision]:
        """Begin sessions: all records are replayed."""

    def metadata_changed(self, image: MetadataImage, delta: MetadataDelta, now: Now) -> Iterable[Decision]:
        """Follow topics, partitions and group configurations that changed."""

    def append_failed(self, decision: Decision, error: ErrorCode, now: Now) -> Decision | None:
        """Put volatile state right after a decision that was not appended."""

    def join_group(self, request: JoinGroup, token: Any, now: Now) -> Decision:
        """Take in a member that speaks the classic protocol; `token` may be answered later."""

    def sync_group(self, request: SyncGroup, token: Any, now: Now) -> Decision:
        """Tell a member of the classic protocol its assignment; `token` may be answered later."""

    def heartbeat(self, request: Heartbeat, token: Any, now: Now) -> Decision:
        """Prolong the session of a member of the classic protocol."""

    def leave_group(self, request: LeaveGroup, token: Any, now: Now) -> Decision:
        """Remove members of the classic protocol."""

    def offsets_committed(self, group: Group, member_id: str, now: Now) -> None:
        """A member has shown by a commit that it lives."""
