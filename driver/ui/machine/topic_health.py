"""How the partitions of each topic are, looked at again only where the image has changed.

An image shares with the one before it what the records in between did not touch. So of a topic that is the
same object as last time nothing is looked at again, and of an image that is the same nothing at all. What is
kept is as large as the newest image.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from driver.ui.machine.status import PartitionsStatus, PartitionTrouble, TopicSummary, Trouble
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration, TopicImage
from sparklog.types import BrokerId

__all__ = ["BrokerLoad", "TopicHealth", "trouble_of"]

_MAX_TROUBLED: Final = 100
"""How many partitions are named; more than anybody reads, and the topics' pages have them all."""
_WORST_FIRST: Final = tuple(Trouble)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """How many partitions a broker has a part in."""

    led: int = 0
    held: int = 0
    in_sync: int = 0


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found in one topic."""

    topic: TopicImage
    min_insync_replicas: int
    summary: TopicSummary
    troubled: tuple[PartitionTrouble, ...]
    led: Counter[BrokerId]
    held: Counter[BrokerId]
    in_sync: Counter[BrokerId]


def trouble_of(partition: PartitionRegistration, min_insync_replicas: int) -> Trouble | None:
    """Return the worst that can be said of a partition."""
    if partition.leader is None:
        return Trouble.OFFLINE
    # As in Kafka: a topic with fewer replicas than the minimum is as well off as it can be.
    if len(partition.isr) < min(min_insync_replicas, len(partition.replicas)):
        return Trouble.UNDER_MIN_ISR
    # A replica that is being added is not missed yet.
    wanted = set(partition.replicas).difference(partition.adding_replicas)
    return Trouble.UNDER_REPLICATED if wanted.difference(partition.isr) else None


class TopicHealth:
    """The topics' partitions, image after image."""

    def __init__(self, min_insync_replicas: Callable[[Mapping[str, str]], int]) -> None:
        """`min_insync_replicas` says how many replicas a topic of that configuration must have in sync."""
        self._min_insync_replicas = min_insync_replicas
        self._image = EMPTY_IMAGE
        self._looked: dict[UUID, _Looked] = {}
        self.names: tuple[str, ...] = ()
        """Of all topics, in order."""
        self.loads: Mapping[BrokerId, BrokerLoad] = {}
        self.partitions = PartitionsStatus(
            count=0, offline=0, under_min_isr=0, under_replicated=0, troubled=()
        )

    def look_at(self, image: MetadataImage) -> int:
        """Take a newer image in; return how many topics had to be looked at."""
        if image is self._image:
            return 0
        looked, again = {}, 0
        for topic_id, topic in image.topics.by_id.items():
            known = self._looked.get(topic_id)
            minimum = self._min_insync_replicas(image.topic_configs(topic.name))
            if known is None or known.topic is not topic or known.min_insync_replicas != minimum:
                known = _look_at(topic, minimum)
                again += 1
            looked[topic_id] = known
        if again or len(looked) != len(self._looked):
            self._looked = looked
            self._add_up()
        self._image = image
        return again

    def summaries(self, first: int, count: int) -> tuple[TopicSummary, ...]:
        """Return up to `count` topics by name, from the one with number `first` on."""
        by_name = self._image.topics.by_name
        return tuple(
            self._looked[by_name[name].topic_id].summary for name in self.names[first : first + count]
        )

    def _add_up(self) -> None:
        led: Counter[BrokerId] = Counter()
        held: Counter[BrokerId] = Counter()
        in_sync: Counter[BrokerId] = Counter()
        count, found, troubled = 0, Counter[Trouble](), list[PartitionTrouble]()
        for looked in self._looked.values():
            led.update(looked.led)
            held.update(looked.held)
            in_sync.update(looked.in_sync)
            count += looked.summary.partitions
            found[Trouble.OFFLINE] += looked.summary.offline
            found[Trouble.UNDER_MIN_ISR] += looked.summary.under_min_isr
            found[Trouble.UNDER_REPLICATED] += looked.summary.under_replicated
            troubled += looked.troubled
        troubled.sort(key=lambda each: (_WORST_FIRST.index(each.trouble), each.topic, each.partition))
        self.names = tuple(sorted(looked.summary.name for looked in self._looked.values()))
        self.loads = {
            broker_id: BrokerLoad(led[broker_id], held[broker_id], in_sync[broker_id]) for broker_id in held
        }
        self.partitions = PartitionsStatus(
            count=count,
            offline=found[Trouble.OFFLINE],
            under_min_isr=found[Trouble.UNDER_MIN_ISR],
            under_replicated=found[Trouble.UNDER_REPLICATED],
            troubled=tuple(troubled[:_MAX_TROUBLED]),
        )


def _look_at(topic: TopicImage, min_insync_replicas: int) -> _Looked:
    led: Counter[BrokerId] = Counter()
    held: Counter[BrokerId] = Counter()
    in_sync: Counter[BrokerId] = Counter()
    found, troubled = Counter[Trouble](), list[PartitionTrouble]()
    for number, partition in sorted(topic.partitions.items()):
        if partition.leader is not None:
            led[partition.leader] += 1
        held.update(partition.replicas)
        in_sync.update(partition.isr)
        trouble = trouble_of(partition, min_insync_replicas)
        if trouble is not None:
            found[trouble] += 1
            troubled.append(_named(topic.name, number, partition, trouble))
    troubled.sort(key=lambda each: (_WORST_FIRST.index(each.trouble), each.partition))
    summary = TopicSummary(
        name=topic.name,
        partitions=len(topic.partitions),
        replicas=max((len(each.replicas) for each in topic.partitions.values()), default=0),
        offline=found[Trouble.OFFLINE],
        under_min_isr=found[Trouble.UNDER_MIN_ISR],
        under_replicated=found[Trouble.UNDER_REPLICATED],
    )
    return _Looked(topic, min_insync_replicas, summary, tuple(troubled[:_MAX_TROUBLED]), led, held, in_sync)


def _named(topic: str, number: int, partition: PartitionRegistration, trouble: Trouble) -> PartitionTrouble:
    return PartitionTrouble(
        topic=topic,
        partition=number,
        trouble=trouble,
        leader=partition.leader,
        replicas=partition.replicas,
        isr=partition.isr,
        eligible=partition.elr,
    )
