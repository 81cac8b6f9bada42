"""One classic group: its members, its generation, and its state in the transition to the next one.

    Empty ---------> PreparingRebalance ---------> CompletingRebalance ---------> Stable
      ^                 |   ^     ^    all joined       |      |    the leader's     |
      +-----------------+   |     +---------------------+      |    assignment is    |
        no member is left   |       a member joins or leaves   |    replayed         |
                            +----------------------------------+---------------------+

This keeps the books of members and generations; requests and their consequences are in `classic_groups`,
`rebalance` and `syncing`. Before the leader's assignment a generation is volatile, as in Kafka: after a
failover the coordinator has the last assigned generation, and members rejoin.

Source: Kafka's ClassicGroup, ClassicGroupMember and ClassicGroupState.
"""

import struct
from collections import Counter
from collections.abc import Container, Iterable, Sequence, Set
from enum import StrEnum
from typing import Any, Final

from sparklog.executor.coordinators.groups.machine.group import CommitValidation, GroupType
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.executor.coordinators.records.consumer_offsets import GroupMetadataKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TimestampMs

_HEAD: Final = struct.Struct(">hi")
_VERSION_BYTES: Final = 2
_LENGTH: Final = struct.Struct(">h")
MAX_NAMES: Final = 20_000
"""The most names parsed for a group: some 10 ms. Consecutive equal subscriptions are parsed once."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> Set[str] | None:
    """Return the topics of all subscriptions; None if one is malformed, or there are too many names.

    A subscription begins as in its first version: int16 version, then an array of strings. Parsing blocks
    the loop: beyond `MAX_NAMES` the topics count as unknown, and no offset of the group expires or can be
    deleted. Source: Kafka's ConsumerProtocol.

    >>> one = b"\\0\\1" b"\\0\\0\\0\\2" b"\\0\\1a" b"\\0\\1b" b"\\xff\\xff\\xff\\xff"
    >>> other = b"\\0\\0" b"\\0\\0\\0\\1" b"\\0\\1c"
    >>> sorted(subscribed_topics([one, other]))
    ['a', 'b', 'c']
    >>> subscribed_topics([one, b"something else"]) is None
    True
    """
    topics: set[str] = set()
    left = MAX_NAMES
    names = b""
    try:
        for metadata in subscriptions:
            version, count = _HEAD.unpack_from(metadata)
            if version < 0 or count < 0:
                return None
            if names and metadata.startswith(names, _VERSION_BYTES):
                continue
            left -= count
            if left < 0:
                return None
            position = _HEAD.size
            for _ in range(count):
                (length,) = _LENGTH.unpack_from(metadata, position)
                position += _LENGTH.size
                if length < 0 or position + length > len(metadata):
                    return None
                topics.add(metadata[position : position + length].decode())
                position += length
            names = metadata[_VERSION_BYTES:position]
    except (struct.error, UnicodeDecodeError):
        return None
    return topics


CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers (of Kafka's clients; Connect has another)."""


class ClassicMember:
    """A member, and its open requests.

    A member with an open JoinGroup or SyncGroup need not send heartbeats. A new one need not either, but its
    JoinGroup has a time-out (`is_new`): its client may have gone and rejoin under another id.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[tuple[str, bytes], ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        """None for a dynamic member (KIP-345)."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        """Name and metadata of each, in the member's order of preference."""
        self.assignment = assignment
        self.awaiting_join: Any | None = None
        """Token of its open JoinGroup."""
        self.awaiting_sync: Any | None = None
        """Token of its open SyncGroup."""
        self.is_new = False

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether an open request keeps its session alive."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Return its metadata for this protocol.

        Raises:
            KeyError: it does not speak it.
        """
        return dict(self.protocols)[protocol_name]

    def vote(self, candidates: Container[str]) -> str:
        """Return the member's preferred protocol among `candidates`.

        Raises:
            StopIteration: the member supports none of them.
        """
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroupState(StrEnum):
    """Kafka's names of the states, as in the responses of the describing APIs."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """Only in the description of a group that does not exist."""


class ClassicGroup:
    group_type: Final = GroupType.CLASSIC

    def __init__(
        self,
        group_id: str,
        *,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        state_timestamp_ms: TimestampMs | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state: ClassicGroupState | None = None
        self.state_timestamp_ms = state_timestamp_ms
        """Time of the last transition by the wall clock; None if the log does not have it."""
        self.generation = generation
        self.protocol_type = protocol_type
        """None until a member joins: always for a simple group, which has offsets only."""
        self.protocol_name = protocol_name
        """The protocol of this generation, which all members support."""
        self.leader_id = leader_id
        self.members: dict[str, ClassicMember] = {}
        self.static_member_ids: dict[str, str] = {}
        """Group instance id to member id."""
        self.pending_join_members: set[str] = set()
        """Ids given to members that have yet to join with them (KIP-394)."""
        self.pending_sync_members: set[str] = set()
        """Members that know this generation and have not requested their assignment yet."""
        self.new_member_added = False
        """Whether the first rebalance of the group waits for more members."""
        self.subscribed_topics: Set[str] | None = None
        """Topics that consumers of this generation read; None if unknown."""
        self.awaiting_join_count = 0
        self.must_rebalance = False
        """Whether the assignment of this generation leaves partitions out: it has no leader in the log."""
        self._supported: Counter[str] = Counter()

    def __str__(self) -> str:
        return f"group {self.group_id} (generation {self.generation}, {self.state})"

    # ---- what every group is asked (group.Group) -------------------------------------------------------

    @property
    def state_name(self) -> str:
        return str(self.state)

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def speaks_consumer_protocol(self) -> bool:
        """Whether the members are consumers, so that their metadata is a subscription."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check that this is a member, and the holder of its instance id if it has one."""
        if group_instance_id is not None:
            holder = self.static_member_ids.get(group_instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id
            if holder != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> CommitValidation:
        """Check member and generation of a commit; without a member it is valid while the group is empty.

        Transactional commits of clients before KIP-447 have neither member nor generation, and are accepted.
        """
        if generation_or_member_epoch < 0 and self.is_empty:
            return ErrorCode.none
        if generation_or_member_epoch >= 0 or member_id or group_instance_id is not None:
            error_code = self.validate_member(member_id, group_instance_id)
            if error_code is not ErrorCode.none:
                return error_code
            if generation_or_member_epoch != self.generation:
                return ErrorCode.illegal_generation
        elif not is_transactional and not self.is_empty:
            return ErrorCode.unknown_member_id
        if not is_transactional and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Accept every client."""
        return ErrorCode.none

    def validate_offset_delete(self) -> ErrorCode:
        """Refuse if members' topics are unknown: only consumers have subscriptions."""
        return ErrorCode.none if self.is_empty or self.speaks_consumer_protocol else ErrorCode.non_empty_group

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.none if self.is_empty else ErrorCode.non_empty_group

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic, or may, because their subscriptions are unknown."""
        if self.subscribed_topics is None:
            return self.speaks_consumer_protocol
        return topic in self.subscribed_topics

    def offset_expiration_base_ms(self, commit_timestamp_ms: TimestampMs) -> TimestampMs | None:
        """Return when the group became empty, or the commit's time for simple groups and unread topics.

        Source: KIP-211.
        """
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        knows_topics = self.speaks_consumer_protocol and self.subscribed_topics is not None
        return commit_timestamp_ms if knows_topics and self.state is ClassicGroupState.STABLE else None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return (CoordinatorRecord(GroupMetadataKey(group=self.group_id), None),)

    # ---- members ---------------------------------------------------------------------------------------

    @property
    def all_members_joined(self) -> bool:
        """Whether all members have rejoined, and no new id is pending."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time for members to rejoin: the longest of their rebalance time-outs."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports_protocols(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether a member with these protocols has one in common with all members."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in protocol_names)
        return self.protocol_type == protocol_type and any(
            self._supported[name] == len(self.members) for name in protocol_names
        )

    def add(self, member: ClassicMember, protocol_type: str, awaiting_join: Any | None = None) -> None:
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_member_ids, "a static member is replaced"
            self.static_member_ids[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(name for name, _ in member.protocols)
        self.await_join(member, awaiting_join)
        self.pending_join_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or a pending member id; its open requests were answered before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supported.subtract(name for name, _ in member.protocols)
            self.await_join(member, None)
            if member.group_instance_id is not None:
                del self.static_member_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[tuple[str, bytes], ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._supported.subtract(name for name, _ in member.protocols)
        self._supported.update(name for name, _ in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def await_join(self, member: ClassicMember, token: Any | None) -> None:
        """Set or clear the token of a member's JoinGroup."""
        self.awaiting_join_count += (token is not None) - (member.awaiting_join is not None)
        member.awaiting_join = token

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a returning static member its new id and keep the rest of its state."""
        old_member_id = self.static_member_ids[group_instance_id]
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        member.is_new = False
        self.members[new_member_id] = member
        self.static_member_ids[group_instance_id] = new_member_id
        self.pending_sync_members.discard(old_member_id)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    # ---- generations -----------------------------------------------------------------------------------

    def transition_to(self, state: ClassicGroupState, wall_ms: TimestampMs) -> None:
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = wall_ms

    def elect_joined_leader(self) -> bool:
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is None:
            joined = (member for member in self.members.values() if member.awaiting_join is not None)
            leader = next(joined, None)
            if leader is None:
                return False
            self.leader_id = leader.member_id
        return True

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def begin_generation(self, wall_ms: TimestampMs) -> None:
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        self.transition_to(
            ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, wall_ms
        )
        self.pending_sync_members.clear()

    def read_subscriptions(self) -> Set[str] | None:
        """Return the topics that the members read, by the protocol of this generation; None if unknown."""
        if not self.speaks_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())
