"""A member of the consumer protocol (KIP-848): heartbeats with its epoch, and what it holds if that changed.

It says everything when it joins and after whatever went wrong. What it is assigned it holds at once, and what
it is not assigned any more it gives up later, while its heartbeats go on, and says so. A static member that
will be back leaves with epoch -2, any other with -1.
"""

from typing import TYPE_CHECKING, Any, Final

from sparklog.executor.coordinators.groups.machine.consumer.heartbeats import ConsumerGroupHeartbeat
from sparklog.executor.coordinators.groups.machine.consumer.member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Token
from sparklog.protocol.errors import ErrorCode
from tests.simulation.coordinating import Coordinated
from tests.simulation.member import Held, Member, Stamp

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.simulation.member_group import MemberGroup

_API_VERSION: Final = 1
_REVOCATION_MS: Final = (200, 1_500)
"""How long it may take to give partitions up: some have much to finish."""


class ConsumerMember(Member):
    """One process that speaks the consumer protocol."""

    def __init__(
        self,
        group: "MemberGroup",
        name: str,
        instance_id: str | None,
        *,
        regex: str | None,
        server_assignor: str | None,
    ) -> None:
        super().__init__(group, name, instance_id)
        self._member_id = f"{name}.{self.incarnation}"
        self._regex = regex
        self._server_assignor = server_assignor
        self._target: frozenset[Held] = frozenset()
        self._reported: frozenset[Held] | None = None
        """What it said last that it holds; None: everything is to be said."""
        self._must_acknowledge = False
        """Whether it is to say what it holds, as it was told an assignment, be that what it holds already."""
        self._is_leaving = False
        self._is_revoking = False
        self._revocation_ms = self._random.choice(_REVOCATION_MS)
        self._number = 0
        """Counts its heartbeats; there is one under way at most."""
        self.epoch = 0
        self.soon(self._heartbeat)

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and self.is_in_session and self._reported == self._target == self._holds.keys()

    def leave(self, *, will_be_back: bool = False) -> None:
        """Say that it goes, for good or to come back, and end."""
        self._is_leaving = True
        self.is_member = False
        self.give_up(self._holds)
        epoch = LEAVE_GROUP_STATIC_MEMBER_EPOCH if will_be_back else LEAVE_GROUP_MEMBER_EPOCH
        self._ask(epoch, None, lambda *answer: self.end_by_itself("it has left"))

    def _heartbeat_if_last(self, number: int) -> None:
        """Send a heartbeat, unless one was sent since."""
        if number == self._number:
            self._heartbeat()

    def _heartbeat(self) -> None:
        if self._is_leaving:
            return
        if self.epoch > 0 and not self.is_in_session:
            # What it held may be another's by now; what is still its own it is told again.
            self.give_up(self._holds)
            self._reported = None
        self.look_for_topics()
        self._number += 1
        number, says_everything = self._number, self._reported is None
        holds = frozenset(self._holds)
        reported = holds if says_everything or self._must_acknowledge or holds != self._reported else None
        self._ask(
            self.epoch,
            reported,
            lambda answer, sent_ms, stamp: self._answered(number, holds, answer, sent_ms, stamp),
            says_everything=says_everything,
        )

    def _ask(
        self,
        epoch: int,
        reported: frozenset[Held] | None,
        answered: "Callable[[Coordinated | None, int, Stamp], None]",
        *,
        says_everything: bool = False,
    ) -> None:
        names = frozenset(self.group.topics) if self._regex is None else frozenset[str]()
        event = ConsumerGroupHeartbeat(
            self.group.group_id,
            self._member_id,
            epoch,
            client_id="client",
            client_host="/127.0.0.1",
            api_version=_API_VERSION,
            new_member_id="",
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.group.rebalance_timeout_ms if says_everything else None,
            subscribed_topic_names=names if says_everything else None,
            subscribed_topic_regex=self._regex if says_everything else None,
            server_assignor=self._server_assignor if says_everything else None,
            owned_partitions=None if reported is None else _by_topic(reported),
        )
        self.ask(event, decide_heartbeat, answered)

    def _answered(
        self,
        number: int,
        holds: frozenset[Held],
        answer: Coordinated | None,
        sent_ms: int,
        stamp: Stamp,
    ) -> None:
        if number != self._number or self._is_leaving:
            return
        if answer is None or answer.error_code is not ErrorCode.none:
            self._reported = None
            self.soon(self._heartbeat)
            return
        response = answer.response
        if response.error_code is not ErrorCode.none:
            self._refused(response.error_code, response.error_message or "")
            return
        if response.member_epoch < self.epoch:
            self.world.epoch_fell(self.group.group_id, self.epoch, response.member_epoch, stamp)
        self.epoch = response.member_epoch
        self.is_member = stamp is not None
        lapsed = not self.is_in_session
        if lapsed:
            self.give_up(self._holds)
        self.in_contact(sent_ms, stamp)
        if response.assignment is not None:
            self._target = frozenset(
                (topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            )
            self.take(self._target)
        # Of what it has given up just now it is told again only if it says everything.
        self._reported = None if lapsed else holds
        self._must_acknowledge = response.assignment is not None and self.epoch > 0
        if self._holds.keys() - self._target and not self._is_revoking:
            self._is_revoking = True
            self.soon(self._reconcile, self._revocation_ms)
        self.after(self.group.heartbeat_ms, self._heartbeat_if_last, number)

    def _reconcile(self) -> None:
        """Give up what it is not assigned, and say so."""
        self._is_revoking = False
        self.give_up(self._holds.keys() - self._target)
        self._heartbeat()

    def _refused(self, error_code: ErrorCode, message: str) -> None:
        match error_code:
            case ErrorCode.fenced_instance_id:
                self.end_by_itself("it is fenced")
                return
            case ErrorCode.unknown_member_id | ErrorCode.fenced_member_epoch | ErrorCode.group_id_not_found:
                # It may be behind by two answers that were lost, but never ahead.
                is_behind = error_code is ErrorCode.fenced_member_epoch and "greater" not in message
                self.refused(error_code, with_reason=is_behind)
                self.epoch = 0
        self._target = frozenset()
        self._reported = None
        self.soon(self._heartbeat)


def _by_topic(partitions: frozenset[Held]) -> "dict[UUID, set[int]]":
    by_topic: dict[Any, set[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, set()).add(partition)
    return by_topic


def decide_heartbeat(
    machine: GroupMachine, event: ConsumerGroupHeartbeat, token: Token, now: Now
) -> CoordinatorResult:
    """Decide as `sparklog.executor.coordinators.groups.api.consumer_group_heartbeat` has it decided."""
    return machine.consumer.consumer_group_heartbeat(event, token, now)
