"""What must hold of groups and their members; see `tests.simulation.invariants`.

Two looks at the same: what the committed part of the log says of a group, record by record, and what members
were told, who may have heard it late. A coordinator that tells what its log does not say is caught at once.
"""

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sparklog.executor.coordinators.groups.machine.consumer.heartbeats import ConsumerGroupHeartbeat
from sparklog.executor.coordinators.groups.machine.membership import SyncGroup
from sparklog.executor.coordinators.groups.machine.offsets import OffsetCommit
from sparklog.executor.coordinators.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.executor.partitions.replica import Replica
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from tests.key_values import read_keys_and_values
from tests.simulation.invariant import Invariant
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.member import Held, Member
    from tests.simulation.observer import Observer

_AWAY = -2
"""The epoch of a static member that will be back."""


class GroupHistory:
    """What the committed part of a log has said of groups, and from where on."""

    def __init__(self) -> None:
        self._count = self._losses = 0
        self._ends: defaultdict[Any, list[Offset]] = defaultdict(list)
        self._values: defaultdict[Any, list[Any]] = defaultdict(list)
        self._members: defaultdict[str, set[str]] = defaultdict(set)
        """Of consumer groups, those with a current assignment."""

    def follow(self, ledger: Ledger) -> list[str]:
        """Take in what is committed by now; return what is wrong with it."""
        if ledger.losses != self._losses:
            self.__init__()  # type: ignore[misc]
            self._losses = ledger.losses
        wrong: list[str] = []
        for batch in ledger.batches[self._count :]:
            header = read_header(batch)
            touched: dict[str, tuple[int, bool] | None] = {}
            for key, value in read_keys_and_values(batch, header, 0):
                self._take(*CONSUMER_OFFSETS_RECORDS.decode(key, value), header.next_offset, touched, wrong)
            for group_id, before in touched.items():
                self._compare(group_id, before, self._epoch(group_id), wrong)
        self._count = len(ledger.batches)
        return wrong

    def at(self, key: Any, end_offset: Offset) -> Any | None:
        """Return what was said when the log ended there; None if nothing was, or a tombstone."""
        number = bisect_right(self._ends[key], end_offset)
        return self._values[key][number - 1] if number else None

    def _last(self, key: Any) -> Any | None:
        values = self._values[key]
        return values[-1] if values else None

    def _take(
        self, key: Any, value: Any, end_offset: Offset, touched: dict[str, Any], wrong: list[str]
    ) -> None:
        match key:
            case GroupMetadataKey(group=group_id):
                touched.setdefault(group_id, self._epoch(group_id))
                self._compare_generations(group_id, self._last(key), value, wrong)
            case ConsumerGroupMetadataKey(group_id=group_id):
                touched.setdefault(group_id, self._epoch(group_id))
            case ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id):
                touched.setdefault(group_id, self._epoch(group_id))
                before = self._last(key)
                if value is None:
                    self._members[group_id].discard(member_id)
                else:
                    self._members[group_id].add(member_id)
                    if before is not None and _AWAY != value.member_epoch < before.member_epoch:
                        wrong.append(
                            f"{member_id} of {group_id} falls from epoch {before.member_epoch} to "
                            f"{value.member_epoch}"
                        )
            case _:
                return
        self._ends[key].append(end_offset)
        self._values[key].append(value)

    def _epoch(self, group_id: str) -> tuple[int, bool] | None:
        """Return the group's generation or epoch, and whether anybody is in it."""
        classic = self._last(GroupMetadataKey(group=group_id))
        if classic is not None:
            return classic.generation, bool(classic.members)
        consumer = self._last(ConsumerGroupMetadataKey(group_id=group_id))
        return None if consumer is None else (consumer.epoch, bool(self._members[group_id]))

    def _compare(
        self, group_id: str, before: tuple[int, bool] | None, after: tuple[int, bool] | None, wrong: list[str]
    ) -> None:
        # Who is the first in an empty group may begin at the beginning, with the other protocol.
        if before is not None and before[1] and (after is None or after[0] < before[0]):
            wrong.append(f"{group_id} falls from generation or epoch {before[0]} to {after}")
        owners: dict[Any, str] = {}
        for member_id in self._members[group_id]:
            key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            value = self._last(key)
            assert value is not None, "tombstones are not counted"
            for held in (*value.assigned_partitions, *value.partitions_pending_revocation):
                for partition in held.partitions:
                    other = owners.setdefault((held.topic_id, partition), member_id)
                    if other != member_id:
                        wrong.append(f"{group_id} gives {partition} to {member_id}, and {other} has it")

    def _compare_generations(
        self,
        group_id: str,
        before: GroupMetadataValue | None,
        after: GroupMetadataValue | None,
        wrong: list[str],
    ) -> None:
        if before is None or after is None or before.generation != after.generation or not before.members:
            return
        if after.members and _assigned(before) != _assigned(after):
            wrong.append(f"{group_id} is assigned twice in generation {after.generation}")


class GroupsAreAsCommitted(Invariant):
    """Members are told, and may commit, as the committed part of the log says; and that never goes back."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._histories: dict[TopicIdPartition, GroupHistory] = {}

    def coordinated(
        self,
        broker: "BrokerProcess",
        replica: Replica,
        leader_epoch: LeaderEpoch,
        asked: Any,
        response: Any,
        ledger: Ledger,
    ) -> None:
        event = asked.message.event
        if not isinstance(event, SyncGroup | ConsumerGroupHeartbeat | OffsetCommit):
            return
        if not ledger.counts(leader_epoch) or asked.end_offset is None:
            return
        history = self._histories.setdefault(ledger.key, GroupHistory())
        for complaint in history.follow(ledger):
            self.fail(complaint, ledger.key)
        wrong: str | None
        match event:
            case SyncGroup():
                wrong = _wrong_sync(history, event, response, asked.end_offset)
            case ConsumerGroupHeartbeat():
                wrong = _wrong_heartbeat(history, event, response, asked.end_offset)
            case OffsetCommit():
                wrong = _wrong_commit(history, event, response, asked.end_offset)
        if wrong is not None:
            self.fail(f"{broker.name} {wrong}", ledger.key)


def _wrong_sync(history: GroupHistory, event: SyncGroup, response: Any, end_offset: Offset) -> str | None:
    if response.error_code is not ErrorCode.none:
        return None
    said = f"tells {event.member_id} its assignment in generation {event.generation}"
    group = history.at(GroupMetadataKey(group=event.group_id), end_offset)
    if group is None:
        return _wrong_epoch(history, event.group_id, event.member_id, event.generation, end_offset, said)
    assigned = {member.member_id: member.assignment for member in group.members}
    if group.generation == event.generation and assigned.get(event.member_id) == response.assignment:
        return None
    return f"{said}, committed is generation {group.generation} of {sorted(assigned)}"


def _wrong_heartbeat(
    history: GroupHistory, event: ConsumerGroupHeartbeat, response: Any, end_offset: Offset
) -> str | None:
    if response.error_code is not ErrorCode.none or event.member_epoch < 0:
        return None
    said = f"tells {event.member_id} that its epoch is {response.member_epoch}"
    wrong = _wrong_epoch(history, event.group_id, event.member_id, response.member_epoch, end_offset, said)
    if wrong is not None or response.assignment is None:
        return wrong
    told = {topic.topic_id: set(topic.partitions) for topic in response.assignment.topic_partitions}
    value = _current(history, event.group_id, event.member_id, end_offset)
    committed = {topic.topic_id: set(topic.partitions) for topic in value.assigned_partitions}
    return None if told == committed else f"{said} and assigns it {told}, committed is {committed}"


def _wrong_commit(
    history: GroupHistory, event: OffsetCommit, response: Any, end_offset: Offset
) -> str | None:
    taken = any(code is ErrorCode.none for _, errors in response for _, code in errors)
    if not taken or not event.member_id:
        return None
    said = f"takes a commit of {event.member_id} in {event.generation_or_member_epoch}"
    group = history.at(GroupMetadataKey(group=event.group_id), end_offset)
    if group is not None:
        # What was begun since the last assignment is not in the log; nobody may be behind that.
        if event.generation_or_member_epoch > group.generation:
            return None
        if event.generation_or_member_epoch == group.generation and (
            event.member_id in {member.member_id for member in group.members}
        ):
            return None
        return f"{said}, committed is generation {group.generation}"
    value = _current(history, event.group_id, event.member_id, end_offset)
    if value is None:
        return f"{said}, who is no member"
    if event.generation_or_member_epoch > value.member_epoch:
        return f"{said}, committed is epoch {value.member_epoch}"
    return None


def _wrong_epoch(
    history: GroupHistory, group_id: str, member_id: str, epoch: int, end_offset: Offset, said: str
) -> str | None:
    value = _current(history, group_id, member_id, end_offset)
    if value is not None and value.member_epoch == epoch:
        return None
    return f"{said}, committed is {None if value is None else value.member_epoch}"


def _current(history: GroupHistory, group_id: str, member_id: str, end_offset: Offset) -> Any | None:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return history.at(key, end_offset)


def _assigned(group: GroupMetadataValue) -> dict[str, bytes]:
    """Return what each member has, by what stays the same when a static member comes back."""
    return {member.group_instance_id or member.member_id: member.assignment for member in group.members}


class OnePartitionOneOwner(Invariant):
    """No two members hold a partition, as they see it: what is not given up is held until a session ends."""

    def held_twice(
        self, group_id: str, held: "Held", members: "tuple[Member, Member]", key: TopicIdPartition
    ) -> None:
        names = " and ".join(f"{member.identity} in {member.epoch}" for member in members)
        self.fail(f"{names} of {group_id} both hold {held[0].int}-{held[1]}", key)


class HealthyMemberStays(Invariant):
    """Nobody is told that he is no member whose session lasts by his own clock."""

    def member_refused(
        self, group_id: str, identity: str, error_code: ErrorCode, key: TopicIdPartition
    ) -> None:
        self.fail(f"{identity} of {group_id} is told {error_code.name} while its session lasts", key)


class MemberEpochsRise(Invariant):
    """No member is told an epoch below the one it was told before, unless it began anew."""

    def epoch_fell(self, group_id: str, before: int, after: int, key: TopicIdPartition) -> None:
        self.fail(f"a member of {group_id} was in epoch {before}, and is told {after}", key)


class RollingRestartIsUnnoticed(Invariant):
    """A group that nothing happens to but that its coordinator moves is not rebalanced."""

    def rebalanced(self, group_id: str, before: set[int] | None, after: set[int]) -> None:
        self.fail(f"{group_id} was in {before} before all brokers were restarted, and is in {after}")


MEMBER_INVARIANTS: tuple[type[Invariant], ...] = (
    GroupsAreAsCommitted,
    OnePartitionOneOwner,
    HealthyMemberStays,
    MemberEpochsRise,
    RollingRestartIsUnnoticed,
)
