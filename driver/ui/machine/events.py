"""Events, computed from the difference between one committed image and the next.

The same change of many partitions is one event: a fenced broker may have led thousands. The image also gives
the reason: a fenced broker, a shutdown, a preferred replica. Only the reason of a fencing is not in it; the
controller reports it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sparklog.driver.ui.machine.status import Event
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from sparklog.protocol.types import BrokerId, TimestampMs

MAX_EVENTS: Final = 200
_NAMED: Final = 3
"""The number of partitions or topics of one event that are named."""


class CommittedImage(NamedTuple):
    """An image, and the reason of each broker's last fencing or shutdown at its commit."""

    image: MetadataImage
    departure_reasons: Mapping[BrokerId, str]


class _Change(NamedTuple):
    """One change of one subject; changes that differ in the subject only are one event."""

    kind: str
    subject: str
    reason: str


class EventLog:
    """The last events, the newest first, from the given image on."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.events: tuple[Event, ...] = ()
        """Replaced by another object when there is a new event."""

    def note(self, event: Event) -> None:
        """Add an event that is not in the metadata."""
        self._events.appendleft(event)
        self.events = tuple(self._events)

    def committed(self, images: Sequence[CommittedImage], now_ms: TimestampMs) -> None:
        changes: list[_Change] = []
        for committed in images:
            changes += _changes(self._image, committed)
            self._image = committed.image
        subjects: dict[tuple[str, str], list[str]] = {}
        for kind, subject, reason in changes:
            subjects.setdefault((kind, reason), []).append(subject)
        for (kind, reason), of_kind in subjects.items():
            self._events.appendleft(Event(at_ms=now_ms, kind=kind, subject=_joined(of_kind), reason=reason))
        if changes:
            self.events = tuple(self._events)


def _joined(subjects: Sequence[str]) -> str:
    """Return the first of many names.

    >>> _joined(["a-0"]), _joined(["a-0", "a-1", "a-2", "a-3", "a-4"])
    ('a-0', 'a-0, a-1, a-2 and 2 more')
    """
    more = len(subjects) - _NAMED
    return ", ".join(subjects[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _changes(before: MetadataImage, committed: CommittedImage) -> Iterator[_Change]:
    after = committed.image
    yield from _broker_changes(before, committed)
    if after.topics is before.topics:
        return
    for topic_id, topic in after.topics.by_id.items():
        known = before.topics.by_id.get(topic_id)
        if known is topic:
            continue
        if known is None:
            yield _Change("topic created", topic.name, "")
            continue
        yield from _partition_changes(known, topic, committed)
    for topic_id in before.topics.by_id.keys() - after.topics.by_id.keys():
        yield _Change("topic deleted", before.topics.by_id[topic_id].name, "")


def _broker_changes(before: MetadataImage, committed: CommittedImage) -> Iterator[_Change]:
    for broker_id, registration in committed.image.brokers.items():
        known = before.brokers.get(broker_id)
        if known is registration:
            continue
        broker = f"broker {broker_id}"
        if known is None or known.broker_epoch != registration.broker_epoch:
            yield _Change("registered", broker, f"broker epoch {registration.broker_epoch}")
            known = None
        was_fenced = known is None or known.fenced
        if registration.in_controlled_shutdown and not (known and known.in_controlled_shutdown):
            yield _Change("leaving", broker, committed.departure_reasons.get(broker_id, ""))
        if registration.fenced and not was_fenced:
            yield _Change("fenced", broker, committed.departure_reasons.get(broker_id, ""))
        if was_fenced and not registration.fenced:
            yield _Change("unfenced", broker, "it has applied its registration")
        if known is not None:
            lost = len(set(known.log_directories) - set(registration.log_directories))
            if lost:
                yield _Change("disk failed", broker, f"{lost} of its log directories went offline")


def _partition_changes(before: TopicImage, after: TopicImage, committed: CommittedImage) -> Iterator[_Change]:
    if len(after.partitions) > len(before.partitions):
        added = len(after.partitions) - len(before.partitions)
        yield _Change("partitions added", after.name, f"{added:,} more, {len(after.partitions):,} now")
    for number, partition in after.partitions.items():
        known = before.partitions.get(number)
        if known is None or known is partition:
            continue
        name = f"{after.name}-{number}"
        if partition.leader != known.leader:
            yield _Change("election", name, _why_elected(known, partition, committed))
        for broker_id in _without(known.isr, partition.isr):
            yield _Change("ISR shrinks", name, _why_out_of_sync(broker_id, committed))
        for broker_id in _without(partition.isr, known.isr):
            yield _Change("ISR expands", name, f"broker {broker_id} has caught up")


def _why_elected(
    before: PartitionRegistration, after: PartitionRegistration, committed: CommittedImage
) -> str:
    cause = "no leader before" if before.leader is None else _why_gone(before.leader, committed)
    if after.leader is None:
        return f"no leader: {cause or 'none of its replicas may lead'}"
    led = f"broker {after.leader} leads"
    if after.leader not in (*before.isr, *before.elr):
        return f"{led}, an unclean election: {cause or 'as was asked for'}"
    if cause is None:
        preferred = after.leader == after.preferred_leader
        cause = "it is the preferred leader" if preferred else f"broker {before.leader} can't any more"
    return f"{led}: {cause}"


def _why_out_of_sync(broker_id: BrokerId, committed: CommittedImage) -> str:
    return _why_gone(broker_id, committed) or f"broker {broker_id} has fallen behind"


def _why_gone(broker_id: BrokerId, committed: CommittedImage) -> str | None:
    """Return why a broker can't lead or be in sync; None if it could."""
    registration = committed.image.brokers.get(broker_id)
    if registration is None:
        return f"broker {broker_id} is not registered"
    if registration.fenced:
        reason = committed.departure_reasons.get(broker_id)
        return f"broker {broker_id} is fenced" + (f", {reason}" if reason else "")
    if registration.in_controlled_shutdown:
        return f"broker {broker_id} leaves"
    return None


def _without(brokers: Iterable[BrokerId], others: Iterable[BrokerId]) -> Iterator[BrokerId]:
    out = frozenset(others)
    return (broker_id for broker_id in brokers if broker_id not in out)
