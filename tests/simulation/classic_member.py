"""A member of the classic protocol: it joins, the leader assigns, all ask what is theirs and send heartbeats.

An eager one gives everything up before it joins again; a cooperative one says what it holds, keeps that until
it is told to give it up, and joins once more when it has (KIP-429). The leader deals partitions out in order,
but leaves out those that another member holds still. It joins again when there are other topics, and when it
has left something out: who was to give that up may have died, and come back as a static member unnoticed.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription, TopicPartition

from sparklog.executor.coordinators.groups.machine.consumer.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.membership import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.errors import ErrorCode
from tests.simulation.clients import REQUEST_TIMEOUT_MS
from tests.simulation.coordinating import Coordinated
from tests.simulation.member import Held, Member, Stamp

if TYPE_CHECKING:
    from tests.simulation.member_group import MemberGroup

_VERSION: Final = b"\0\3"
_LEADER_DIES: Final = 0.05
"""How often a leader dies with the assignment in its hands."""
_REVOCATION_MS: Final = (200, 1_000)
"""How long it may take to give partitions up: some have much to finish."""
_BEYOND_REBALANCE_MS: Final = 1_500


class ClassicMember(Member):
    """One process that speaks the classic protocol."""

    def __init__(
        self, group: "MemberGroup", name: str, instance_id: str | None, *, is_cooperative: bool
    ) -> None:
        super().__init__(group, name, instance_id)
        self._is_cooperative = is_cooperative
        self._revocation_ms = self._random.choice(_REVOCATION_MS)
        self._member_id = ""
        self._ids = 0
        self._round = 0
        """Counts its attempts to join; what comes of earlier ones is nothing to it any more."""
        self._is_stable = False
        self._assigned: Mapping[str, Collection[int]] = {}
        """By name: the topics may not be known here yet, or be others of the same name."""
        self._claimed: frozenset[Held] = frozenset()
        """What it said it holds when it joined."""
        self._protocol_name = ""
        self._dealt: Mapping[str, int] | None = None
        """As leader: the topics and their partitions that it has dealt out; nothing if some were left out."""
        self.soon(self._join)

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def is_settled(self) -> bool:
        return self._is_stable and self.is_in_session

    def leave(self) -> None:
        """Go for good; a static member of this protocol says nothing, as it may be back."""
        self._round += 1
        if self.instance_id is None and self._member_id:
            self.is_member = False
            self.give_up(self._holds)
            event = LeaveGroup(self.group.group_id, (LeavingMember(self._member_id, None),))
            self.ask(event, GroupMachine.leave_group, lambda *answer: self.end_by_itself("it has left"))
        else:
            self.end_by_itself("it has left")

    # --- joining --------------------------------------------------------------------------------

    def _join(self) -> None:
        self._round += 1
        self._is_stable = False
        if not self._is_cooperative or not self.is_in_session:
            self.give_up(self._holds)
        self._claimed = frozenset(self._holds)
        self._ids += 1
        group = self.group
        event = JoinGroup(
            group.group_id,
            self._member_id,
            self.instance_id,
            "client",
            "/127.0.0.1",
            "consumer",
            ((group.classic_protocol, self._subscription()),),
            group.session_timeout_ms,
            group.rebalance_timeout_ms,
            new_member_id=f"{self.name}.{self.incarnation}-{self._ids}",
            needs_known_member_id=True,
            can_skip_assignment=True,
        )
        number = self._round
        self.ask(
            event,
            GroupMachine.join_group,
            lambda answer, sent_ms, stamp: self._joined(number, answer, sent_ms, stamp),
            group.rebalance_timeout_ms + _BEYOND_REBALANCE_MS,
        )

    def _subscription(self) -> bytes:
        owned: dict[str, list[int]] = {}
        topics = {} if self.image is None else self.image.topics.by_id
        for topic_id, partition in sorted(self._holds):
            if topic_id in topics:
                owned.setdefault(topics[topic_id].name, []).append(partition)
        return _VERSION + encode_to_bytes(
            ConsumerProtocolSubscription(
                topics=tuple(self.group.topics),
                owned_partitions=tuple(
                    TopicPartition(topic=topic, partitions=tuple(partitions))  # type: ignore[arg-type]
                    for topic, partitions in owned.items()
                ),
                generation_id=self.epoch,  # type: ignore[arg-type]
            )
        )

    def _joined(self, number: int, answer: Coordinated | None, sent_ms: int, stamp: Stamp) -> None:
        if number != self._round:
            return
        if answer is None or answer.error_code is not ErrorCode.none:
            self.soon(self._join)
            return
        response = answer.response
        match response.error_code:
            case ErrorCode.none:
                self._member_id, self.epoch = response.member_id, response.generation_id
                self._protocol_name = response.protocol_name
                leads = response.leader == self._member_id
                # Who has come back as a static leader does not know what was dealt out.
                self._dealt = {} if leads else None
                leads = leads and not response.skip_assignment
                if leads and self.group.mishaps_happen and self._random.random() < _LEADER_DIES:
                    self.end_by_itself("it leads, and dies")
                    return
                self.soon(lambda: self._sync(number, response.members if leads else ()), 50)
            case ErrorCode.member_id_required:
                self._member_id = response.member_id
                self.soon(self._join, 20)
            case error_code:
                self._begin_anew(error_code)

    def _begin_anew(self, error_code: ErrorCode) -> None:
        """Do what a refusal asks for."""
        match error_code:
            case ErrorCode.fenced_instance_id:
                self.end_by_itself("it is fenced")
                return
            case ErrorCode.unknown_member_id:
                self.refused(error_code)
                self._member_id, self.epoch = "", -1
            case ErrorCode.illegal_generation:
                self.give_up(self._holds)
                self.epoch = -1
        self._round += 1
        self.soon(self._join)

    # --- the assignment -------------------------------------------------------------------------

    def _sync(self, number: int, members: Any) -> None:
        if number != self._round:
            return
        event = SyncGroup(
            self.group.group_id,
            self._member_id,
            self.instance_id,
            self.epoch,
            "consumer",
            self._protocol_name,
            self._deal(members) if members else (),
        )
        self.ask(
            event,
            GroupMachine.sync_group,
            lambda answer, sent_ms, stamp: self._synced(number, answer, sent_ms, stamp),
            self.group.rebalance_timeout_ms + _BEYOND_REBALANCE_MS,
        )

    def _deal(self, members: Any) -> tuple[tuple[str, bytes], ...]:
        """Give each partition to one member in turn, unless another one holds it."""
        assert self.image is not None
        topics = self.image.topics
        counts = self._partition_counts()
        left_out = False
        subscriptions = {member.member_id: read_subscription(member.metadata) for member in members}
        holders = {
            (topic, partition): member_id
            for member_id, subscription in subscriptions.items()
            for topic, partitions in subscription.owned_partitions.items()
            for partition in partitions
        }
        in_turn = sorted(subscriptions)
        dealt: dict[str, dict[Any, set[int]]] = {member_id: {} for member_id in in_turn}
        partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
        for number, (topic, partition) in enumerate(partitions):
            member_id = in_turn[number % len(in_turn)]
            if holders.get((topic, partition), member_id) == member_id:
                dealt[member_id].setdefault(topics.by_name[topic].topic_id, set()).add(partition)
            else:
                left_out = True
        self._dealt = {} if left_out else counts
        return tuple(
            (
                member.member_id,
                write_assignment(
                    {topic_id: frozenset(numbers) for topic_id, numbers in dealt[member.member_id].items()},
                    topics,
                    member.metadata,
                ),
            )
            for member in members
        )

    def _partition_counts(self) -> dict[str, int]:
        by_name = {} if self.image is None else self.image.topics.by_name
        return {name: len(by_name[name].partitions) for name in self.group.topics if name in by_name}

    def _synced(self, number: int, answer: Coordinated | None, sent_ms: int, stamp: Stamp) -> None:
        if number != self._round:
            return
        if answer is None or answer.error_code is not ErrorCode.none:
            self.soon(self._join)
            return
        response = answer.response
        if response.error_code is not ErrorCode.none:
            self._begin_anew(response.error_code)
            return
        if not self.is_in_session:
            self.give_up(self._holds)
        self.is_member = stamp is not None
        self.in_contact(sent_ms, stamp)
        self._assigned = read_assignment(response.assignment)[0] if response.assignment else {}
        target = self._target()
        revoked = self._claimed - target
        self.take(target)
        self._is_stable = True
        if revoked:
            self.soon(lambda: self._revoke(number, revoked), self._revocation_ms)
        self.soon(lambda: self._heartbeat(number), self.group.heartbeat_ms)

    def _target(self) -> set[Held]:
        by_name = {} if self.image is None else self.image.topics.by_name
        return {
            (by_name[name].topic_id, partition)
            for name, partitions in self._assigned.items()
            for partition in partitions
            if name in by_name
        }

    def _revoke(self, number: int, partitions: frozenset[Held]) -> None:
        self.give_up(partitions)
        if number == self._round:
            self._join()

    # --- heartbeats -----------------------------------------------------------------------------

    def _heartbeat(self, number: int) -> None:
        if number != self._round:
            return
        if self._dealt is not None and self._dealt != self._partition_counts():
            self._dealt = None
            self._join()
            return
        self.look_for_topics()
        event = Heartbeat(self.group.group_id, self._member_id, self.instance_id, self.epoch)
        self.ask(
            event,
            GroupMachine.heartbeat,
            lambda answer, sent_ms, stamp: self._lives(number, answer, sent_ms, stamp),
            REQUEST_TIMEOUT_MS,
        )

    def _lives(self, number: int, answer: Coordinated | None, sent_ms: int, stamp: Stamp) -> None:
        if number != self._round:
            return
        if answer is not None and answer.error_code is ErrorCode.none:
            error_code = answer.response.error_code
            if error_code is not ErrorCode.none:
                if error_code is ErrorCode.rebalance_in_progress:
                    self._round += 1
                    self.soon(self._join, 50)
                else:
                    self._begin_anew(error_code)
                return
            self.in_contact(sent_ms, stamp)
            target = self._target()
            topic_ids = {topic_id for topic_id, _ in target}
            self.give_up([held for held in self._holds if held[0] not in topic_ids])
            if target - self._holds.keys():
                self.take(target)
        self.after(self.group.heartbeat_ms, self._heartbeat, number)
