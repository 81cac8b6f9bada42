"""A group, its members' places, and what happens to them: they die, leave, hang, and come back as others.

Each place has a process in it, or will have one soon: a supervisor starts the next. In a group that migrates
the next one speaks the other protocol, until all do; then it goes back. In a static group now and then a
second process begins under an instance id that another one still has, which goes on committing.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.types import TopicIdPartition
from tests.simulation.classic_member import ClassicMember
from tests.simulation.consumer_member import ConsumerMember
from tests.simulation.member import Held, Member, Stamp
from tests.simulation.offset_book import OffsetBook

if TYPE_CHECKING:
    from tests.simulation.cluster import World

ALL_TOPICS: Final = "shared.*"
"""What those subscribe by who subscribe by a regular expression."""
_PAUSE_MS: Final = (400, 1_200)
"""Between two things that happen to one group, about."""
_AT_ONCE: Final = 0.3
_SHORT_PAUSE_MS: Final = 300
_WITH_COORDINATOR: Final = 0.15
"""How often something happens to coordinators as well."""
_COMMITS_OF_THE_FIRST: Final = 3
_AGAINST: Final = 0.15
"""How often a process is started in the protocol that its group is to leave."""
_COOPERATIVE: Final = "cooperative-sticky"
_EAGER: Final = "range"


class Protocol(Enum):
    """What the members of a group speak."""

    EAGER = auto()
    COOPERATIVE = auto()
    CONSUMER = auto()
    MIGRATING = auto()
    """Cooperative ones become members of the consumer protocol, and back."""


class _Place:
    """Where a member is, or will be."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member: Member | None = None


class MemberGroup:
    """One group; see the module."""

    def __init__(self, world: "World", number: int, protocol: Protocol, session_timeout_ms: int) -> None:
        self.world: Final = world
        self._random = random = world.scheduler.random
        self.group_id: Final = f"members{number}"
        self.topics: Sequence[str] = ()
        self.protocol: Final = protocol
        self.session_timeout_ms: Final = session_timeout_ms
        # Who hears nothing for a session has given everything up before he is waited for in vain.
        self.rebalance_timeout_ms: Final = 2 * session_timeout_ms + 1_000
        self.heartbeat_ms: Final = min(session_timeout_ms // 5, 400)
        self.classic_protocol: Final = _EAGER if protocol is Protocol.EAGER else _COOPERATIVE
        self.mishaps_happen = False
        self.book: Final = OffsetBook(self)
        self._pause_ms = random.choice(_PAUSE_MS)
        self._speaks_consumer = random.random() < 0.5
        """What new processes of a group that migrates speak, most of them."""
        self._incarnations = 0
        self._members: list[Member] = []
        """All processes that live; a place may have two for a while."""
        self.topics = tuple(name for name in world.topics if name.startswith("shared"))
        self._subscribes_by_regex = random.random() < 0.3
        self._assignor = random.choice((None, "uniform", "range"))
        is_static = random.random() < 0.5
        self._places = [
            _Place(f"member-{number}-{place}", f"instance-{number}-{place}" if is_static else None)
            for place in range(random.randint(2, 4))
        ]
        for place in self._places:
            world.scheduler.after(random.randrange(1_000), self._start, place)

    @property
    def hosts(self) -> list[str]:
        """Where its members are."""
        return [place.name for place in self._places]

    @property
    def looks_for_topics(self) -> bool:
        """Whether members may say by an expression what they read, and its coordinator looks for it."""
        return self._subscribes_by_regex and self.protocol in (Protocol.CONSUMER, Protocol.MIGRATING)

    def next_incarnation(self) -> int:
        """Return the number of the process that begins."""
        self._incarnations += 1
        return self._incarnations

    def stamp(self) -> Stamp:
        """Return where its coordinator is now, and how often that has lost something."""
        topic = self.world.metadata.image.topics.by_name.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            return None
        key = TopicIdPartition(topic.topic_id, partition_for(self.group_id, len(topic.partitions)))
        ledger = self.world.ledger(key)
        return None if ledger.losing else (key, ledger.losses)

    # --- what members report --------------------------------------------------------------------

    def taken(self, member: Member) -> None:
        """A member holds what nobody else may."""
        held = member.held()
        for other in self._members:
            if other.identity != member.identity:
                for partition, stamp in other.held().items():
                    if stamp is not None and held.get(partition) == stamp:
                        self.world.held_twice(self.group_id, partition, (member, other), stamp[0])

    def ended(self, member: Member) -> None:
        """A member's process has ended by itself."""
        if member.alive:
            self.world.tell(None, f"{member.name} ends: {member.fate}")
            self._end(member)

    # --- processes ------------------------------------------------------------------------------

    def _start(self, place: _Place) -> None:
        if place.member is not None:
            return
        place.member = self._new_member(place)
        self.world.tell(None, f"{place.member.identity} begins as {type(place.member).__name__}")

    def _new_member(self, place: _Place) -> Member:
        member: Member
        if self._next_speaks_consumer():
            member = ConsumerMember(
                self,
                place.name,
                place.instance_id,
                regex=ALL_TOPICS if self._subscribes_by_regex else None,
                server_assignor=self._assignor,
            )
        else:
            cooperates = self.protocol is not Protocol.EAGER
            member = ClassicMember(self, place.name, place.instance_id, is_cooperative=cooperates)
        self._members.append(member)
        return member

    def _next_speaks_consumer(self) -> bool:
        if self.protocol is not Protocol.MIGRATING:
            return self.protocol is Protocol.CONSUMER
        kind = ConsumerMember if self._speaks_consumer else ClassicMember
        if self._members and all(isinstance(member, kind) for member in self._members):
            self._speaks_consumer = not self._speaks_consumer
        return self._speaks_consumer is (self._random.random() >= _AGAINST)

    def _end(self, member: Member) -> None:
        member.end(silently=False)
        self._members.remove(member)
        for place in self._places:
            if place.member is member:
                # A second process of its instance id goes on in its place.
                others = (other for other in self._members if other.name == place.name)
                place.member = next(others, None)
                if place.member is None:
                    longest_ms = self._random.choice(
                        (self.session_timeout_ms // 3, 2 * self.session_timeout_ms)
                    )
                    self.world.scheduler.after(1 + self._random.randrange(longest_ms), self._start, place)

    # --- mishaps --------------------------------------------------------------------------------

    def begin_mishaps(self) -> None:
        """Let things happen to members from now on."""
        self.mishaps_happen = True
        self._happen()

    def end_mishaps(self) -> None:
        """Let all go on that are stopped, and nothing else happen."""
        self.mishaps_happen = False
        for member in self._members:
            if member.stopped:
                member.go_on()

    def _happen(self) -> None:
        if not self.mishaps_happen:
            return
        # Two at once now and then: one protocol or the other is at work on a change when the next one comes.
        pause_ms = _SHORT_PAUSE_MS if self._random.random() < _AT_ONCE else self._pause_ms
        self.world.scheduler.after(1 + self._random.randrange(2 * pause_ms), self._happen)
        if self._random.random() < _WITH_COORDINATOR:
            within_ms = self._random.randrange(_SHORT_PAUSE_MS)
            self.world.scheduler.after(1 + within_ms, self.world.disturb_coordinators)
        place = self._random.choice(self._places)
        member = place.member
        if member is None or member.stopped:
            return
        kinds = [self._kill, self._leave, self._stop, self._stop]
        if place.instance_id is not None:
            kinds.append(self._repeat)
        if self.protocol is Protocol.MIGRATING:
            kinds += [self._kill, self._leave, self._leave]
        self._random.choice(kinds)(place, member)

    def _kill(self, place: _Place, member: Member) -> None:
        self.world.tell(None, f"SIGKILL of {member.identity}")
        self._end(member)

    def _leave(self, place: _Place, member: Member) -> None:
        self.world.tell(None, f"{member.identity} leaves")
        if isinstance(member, ConsumerMember):
            will_be_back = place.instance_id is not None and self._random.random() < 0.7
            member.leave(will_be_back=will_be_back)
        elif isinstance(member, ClassicMember):
            member.leave()

    def _stop(self, place: _Place, member: Member) -> None:
        for_ms = 1 + self._random.randrange(self._random.choice((1, 2, 3)) * self.session_timeout_ms)
        self.world.tell(None, f"SIGSTOP of {member.identity} for {for_ms} ms")
        member.stop()
        self.world.scheduler.after(for_ms, self._go_on, member)

    def _go_on(self, member: Member) -> None:
        if member.alive and member.stopped:
            member.go_on()

    def _repeat(self, place: _Place, member: Member) -> None:
        if sum(other.name == place.name for other in self._members) == 1:
            self.world.tell(None, f"a second process begins as {place.instance_id}")
            self._new_member(place).has_rival = member.has_rival = True
            for _ in range(_COMMITS_OF_THE_FIRST):
                member.soon(member.commit_held, 2 * self.heartbeat_ms)

    # --- whether all is well --------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Say what is not well yet."""
        held: list[Held] = []
        epochs = set()
        for place in self._places:
            # Of two with the same instance id one has it, and the other tries for ever.
            settled = (other for other in self._members if other.name == place.name and other.is_settled)
            member = next(settled, None)
            if member is None:
                return f"{place.name} of {self.group_id} has not settled"
            epochs.add(member.epoch)
            held += member.partitions
        if len(epochs) > 1:
            return f"members of {self.group_id} are in epochs {sorted(epochs)}"
        if sorted(held) != sorted(self._partitions()):
            return f"{self.group_id} holds {len(held)} partitions of {len(list(self._partitions()))}"
        return None

    def epochs(self) -> set[int]:
        """Return the generations or epochs in which its members are."""
        return {member.epoch for member in self._members}

    def _partitions(self) -> Iterable[Held]:
        by_name = self.world.metadata.image.topics.by_name
        for name in self.topics:
            if name in by_name:
                for partition in by_name[name].partitions:
                    yield by_name[name].topic_id, partition
