"""What a member of a group does in either protocol: it asks its coordinator, holds partitions and commits.

A member holds a partition from the answer that assigns it until it has given it up, or until its session has
ended by its own clock: it counts from when it sent what was answered last, so that no coordinator can have
given it up sooner. It reads what is committed of a partition that it was assigned before it commits more, and
goes on committing with whatever it knows when it was stopped for longer than a session, as a real one does.
"""

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.offsets import (
    CommittedPartition,
    OffsetCommit,
    OffsetFetch,
)
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import Offset, TopicIdPartition
from tests.simulation.clients import REQUEST_TIMEOUT_MS, RETRY_MS, ClientProcess
from tests.simulation.coordinating import AskCoordinator, Coordinated
from tests.simulation.group_clients import decide_commit, decide_fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.member_group import MemberGroup

Held = tuple[UUID, int]
"""A partition, by the id of its topic."""
Stamp = tuple[TopicIdPartition, int] | None
"""Which coordinator's partition said it, and how often that had lost something; None: one that lost it."""

_API_VERSION: Final = 10
_REFRESHED: Final = 0.1
"""How often a member looks for changed topics when it sends a heartbeat."""
_PAUSE_MS: Final = 300
_DRIFT: Final = 0.02
"""By how much of a session the clocks of a member and of its coordinator may differ at its end."""


class Member(ClientProcess):
    """One process of a group."""

    def __init__(self, group: "MemberGroup", name: str, instance_id: str | None) -> None:
        super().__init__(group.world, name)
        self.group: Final = group
        self.name: Final = name
        self.instance_id: Final = instance_id
        self.incarnation: Final = group.next_incarnation()
        self.identity: Final = f"{name}.{self.incarnation}" if instance_id is None else instance_id
        """Whom partitions are assigned to: a static member has the same when it comes back."""
        self.epoch = -1
        """Its generation, or its member epoch."""
        self.is_member = False
        """Whether the group has a record of it, as far as it knows."""
        self.has_rival = False
        """Whether another process has begun under its instance id; who is fenced hears of it late."""
        self.fate: str | None = None
        """Why it has ended by itself."""
        self._random = group.world.scheduler.random
        self._holds: dict[Held, Stamp] = {}
        self._until_ms = 0
        self._stamp: Stamp = None
        self._positions: dict[Held, Offset] = {}
        self._busy_committing = False
        self.after(self._random.randrange(_PAUSE_MS), self._work)

    # --- what it holds --------------------------------------------------------------------------

    def held(self) -> dict[Held, Stamp]:
        """Return what nobody else may hold."""
        return self._holds if self.is_in_session and not self.has_rival else {}

    @property
    def partitions(self) -> "Iterable[Held]":
        """Return what it was assigned last and has not given up."""
        return self._holds.keys()

    @property
    def is_in_session(self) -> bool:
        """Whether its session lasts, by its own clock."""
        return self.scheduler.now_ms < self._until_ms

    @property
    def is_settled(self) -> bool:
        """Whether it waits for nothing but the next change."""
        raise NotImplementedError

    def take(self, partitions: "Iterable[Held]") -> None:
        """Begin to hold partitions."""
        for held in partitions:
            if held not in self._holds:
                self._positions.pop(held, None)
            self._holds[held] = self._stamp
        self.world.outcome.assignments += 1
        self.group.taken(self)

    def give_up(self, partitions: "Iterable[Held]") -> None:
        """Hold these no more."""
        for held in tuple(partitions):
            self._holds.pop(held, None)
            self._positions.pop(held, None)

    def in_contact(self, sent_ms: int, stamp: Stamp) -> None:
        """What was sent then was answered: the session begins no sooner."""
        lapsed = not self.is_in_session
        self._stamp = stamp
        session_ms = int(self.group.session_timeout_ms * (1 - _DRIFT)) - 2
        self._until_ms = max(self._until_ms, sent_ms + session_ms)
        if lapsed and self._holds:
            self.group.taken(self)

    def refused(self, error_code: ErrorCode, *, with_reason: bool = False) -> None:
        """The coordinator says that this is no member, or none of this epoch, perhaps `with_reason`."""
        is_healthy = self.is_member and self.is_in_session and not with_reason and not self.has_rival
        if is_healthy and self._stamp is not None and self._stamp == self.group.stamp():
            self.world.member_refused(self.group.group_id, self.identity, error_code, self._stamp[0])
        self.is_member = False
        self._until_ms = 0
        self.give_up(self._holds)

    def end_by_itself(self, why: str) -> None:
        """The process ends."""
        self.fate = why
        self.group.ended(self)

    # --- asking ---------------------------------------------------------------------------------

    def ask(
        self,
        event: Any,
        decide: Any,
        answered: "Callable[[Coordinated | None, int, Stamp], None]",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Ask the coordinator; `answered` hears of no answer if there is none, and when it was asked."""
        image = self.image
        topic = None if image is None else image.topics.by_name.get(CONSUMER_OFFSETS_TOPIC)
        number = 0 if topic is None else partition_for(self.group.group_id, len(topic.partitions))
        leader = None if topic is None else topic.partitions[number].leader
        sent_ms = self.scheduler.now_ms
        if topic is None or leader is None:
            self.refresh()
            self.after(RETRY_MS, answered, None, sent_ms, None)
            return

        def take(answer: Coordinated | None) -> None:
            stamp = None
            if answer is None or answer.error_code is not ErrorCode.none:
                self.refresh()
            else:
                assert answer.key is not None, "who answers coordinates"
                ledger = self.world.ledger(answer.key)
                stamp = (answer.key, ledger.losses) if ledger.counts(answer.leader_epoch) else None
            answered(answer, sent_ms, stamp)

        self.link(leader).request(
            AskCoordinator(CONSUMER_OFFSETS_TOPIC, number, event, decide), timeout_ms, take
        )

    def soon(self, action: "Callable[[], None]", within_ms: int = 2 * RETRY_MS) -> None:
        """Do something a little later."""
        self.after(1 + self._random.randrange(within_ms), action)

    def look_for_topics(self) -> None:
        """Ask who leads what, now and then."""
        if self._random.random() < _REFRESHED:
            self.refresh()

    # --- committing -----------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """Its id in the group."""
        raise NotImplementedError

    def _work(self) -> None:
        self.after(1 + self._random.randrange(_PAUSE_MS), self._work)
        if self._busy_committing or not self._holds or not self.world.accepts_writes:
            return
        held = self._random.choice(list(self._holds))
        topic = None if self.image is None else self.image.topics.by_id.get(held[0])
        if topic is None:
            return
        self._busy_committing = True
        if held in self._positions:
            self._commit(topic.name, held)
        else:
            self._read_offset(topic.name, held)

    def go_on(self) -> None:
        super().go_on()
        # It was about to, whatever it would hear first.
        self.commit_held()

    def commit_held(self) -> None:
        """Commit for something that it holds, if it knows of what is committed."""
        known = [held for held in self._holds if held in self._positions]
        if self._busy_committing or not known or not self.world.accepts_writes or self.stopped:
            return
        held = self._random.choice(known)
        topic = None if self.image is None else self.image.topics.by_id.get(held[0])
        if topic is not None:
            self._busy_committing = True
            self._commit(topic.name, held)

    def _read_offset(self, topic: str, held: Held) -> None:
        event = OffsetFetch(
            self.group.group_id, None, -1, ((topic, held[0], (held[1],)),), require_stable=True
        )
        was_held = self.held().get(held)
        self.ask(
            event, decide_fetch, lambda answer, sent_ms, stamp: self._was_read(held, was_held, answer, stamp)
        )

    def _was_read(self, held: Held, was_held: Stamp, answer: Coordinated | None, stamp: Stamp) -> None:
        self._busy_committing = False
        if answer is None or answer.error_code is not ErrorCode.none:
            return
        error_code, topics = answer.response
        (row,) = topics[0][1]
        if error_code is not ErrorCode.none or row.error_code is not ErrorCode.none:
            return
        offset = 0 if row.committed is None else row.committed.offset
        # What is held for a whole read by one member nobody else can have committed meanwhile.
        if stamp is not None and was_held == stamp == self.held().get(held) == self.group.stamp():
            self.group.book.read(held, offset, self.identity, stamp)
            self._positions[held] = offset

    def _commit(self, topic: str, held: Held) -> None:
        offset = self._positions[held] + 1
        self.group.book.sending(held, offset)
        committed = CommittedPartition(held[1], offset, -1, None)
        event = OffsetCommit(
            self.group.group_id,
            self.member_id,
            self.instance_id,
            self.epoch,
            _API_VERSION,
            ((topic, held[0], (committed,)),),
        )
        self.ask(
            event, decide_commit, lambda answer, sent_ms, stamp: self._committed(held, offset, answer, stamp)
        )

    def _committed(self, held: Held, offset: Offset, answer: Coordinated | None, stamp: Stamp) -> None:
        self._busy_committing = False
        if answer is None or answer.error_code is not ErrorCode.none:
            self.group.book.doubt(held, offset)
            return
        (errors,) = answer.response
        error_code = errors[1][0][1]
        if error_code is ErrorCode.none:
            self.group.book.acknowledged(held, offset, stamp)
            self.world.outcome.commits += 1
            if held in self._positions:
                self._positions[held] = offset
        else:
            self.group.book.refused(held, offset)
