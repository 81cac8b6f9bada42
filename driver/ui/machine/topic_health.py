"""The state of each topic's partitions, updated only where the image has changed.

An image shares unchanged objects with the one before. So a topic that is the same object is not examined
again, and the same image costs nothing. The memory used is proportional to the newest image.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sparklog.driver.ui.machine.status import PartitionsStatus, PartitionTrouble, TopicSummary, Trouble
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration, TopicImage
from sparklog.protocol.types import BrokerId

_MAX_TROUBLED: Final = 100
"""The partitions that are named; the topics' pages have them all."""
_WORST_FIRST: Final = tuple(Trouble)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    led: int = 0
    held: int = 0
    in_sync: int = 0


@dataclass(frozen=True, slots=True)
class _Looked:
    topic: TopicImage
    min_insync_replicas: int
    summary: TopicSummary
    troubled: tuple[PartitionTrouble, ...]
    led: Counter[BrokerId]
    held: Counter[BrokerId]
    in_sync: Counter[BrokerId]


def trouble_of(partition: PartitionRegistration, min_insync_replicas: int) -> Trouble | None:
    if partition.leader is None:
        return Trouble.OFFLINE
    # As in Kafka: a topic with fewer replicas than the minimum cannot do better than all of them.
    if len(partition.isr) < min(min_insync_replicas, len(partition.replicas)):
        return Trouble.UNDER_MIN_ISR
    # A replica that is being added is not missing yet.
    wanted = set(partition.replicas).difference(partition.adding_replicas)
    return Trouble.UNDER_REPLICATED if wanted.difference(partition.isr) else None


class TopicHealth:
    def __init__(self, min_insync_replicas: Callable[[MetadataImage], int]) -> None:
        """`min_insync_replicas` returns the value for topics that do not set it."""
        self._min_insync_replicas = min_insync_replicas
        self._default_minimum = min_insync_replicas(EMPTY_IMAGE)
        self._image = EMPTY_IMAGE
        self._looked: dict[UUID, _Looked] = {}
        self._led: Counter[BrokerId] = Counter()
        self._held: Counter[BrokerId] = Counter()
        self._in_sync: Counter[BrokerId] = Counter()
        self._found: Counter[Trouble] = Counter()
        self._partition_count = 0
        self._troubled: dict[UUID, tuple[PartitionTrouble, ...]] = {}
        """Partitions in trouble, by topic id."""
        self.names: tuple[str, ...] = ()
        """Names of all topics, in order."""
        self.loads: Mapping[BrokerId, BrokerLoad] = {}
        self.partitions = PartitionsStatus(
            count=0, offline=0, under_min_isr=0, under_replicated=0, troubled=()
        )

    def look_at(self, image: MetadataImage) -> int:
        """Take a newer image; return the number of examined topics."""
        before, self._image = self._image, image
        topics, same_configs = image.topics.by_id, image.configs is before.configs
        if same_configs and image.topics is before.topics:
            return 0
        if not same_configs:
            self._default_minimum = self._min_insync_replicas(image)
        changed, looked = [], self._looked
        for topic_id, topic in topics.items():
            known = looked.get(topic_id)
            if (
                known is None
                or known.topic is not topic
                or (not same_configs and self._minimum(topic) != known.min_insync_replicas)
            ):
                changed.append(topic)
        gone = looked.keys() - topics.keys()
        named_anew = bool(gone) or any(topic.topic_id not in looked for topic in changed)
        for topic_id in gone:
            self._take_out(topic_id)
        for topic in changed:
            self._take_out(topic.topic_id)
            self._take_in(_look_at(topic, self._minimum(topic)))
        if named_anew:
            self.names = tuple(sorted(image.topics.by_name))
        if changed or gone:
            self._add_up()
        return len(changed)

    def summaries(self, first: int, count: int) -> tuple[TopicSummary, ...]:
        """Return up to `count` topics by name, from the one with number `first` on."""
        by_name = self._image.topics.by_name
        return tuple(
            self._looked[by_name[name].topic_id].summary for name in self.names[first : first + count]
        )

    def _minimum(self, topic: TopicImage) -> int:
        own = self._image.topic_configs(topic.name).get("min.insync.replicas")
        return self._default_minimum if own is None else int(own)

    def _take_in(self, looked: _Looked) -> None:
        topic_id = looked.topic.topic_id
        self._looked[topic_id] = looked
        self._led.update(looked.led)
        self._held.update(looked.held)
        self._in_sync.update(looked.in_sync)
        self._found.update(_found(looked.summary))
        self._partition_count += looked.summary.partitions
        if looked.troubled:
            self._troubled[topic_id] = looked.troubled

    def _take_out(self, topic_id: UUID) -> None:
        looked = self._looked.pop(topic_id, None)
        if looked is None:
            return
        self._led.subtract(looked.led)
        self._held.subtract(looked.held)
        self._in_sync.subtract(looked.in_sync)
        self._found.subtract(_found(looked.summary))
        self._partition_count -= looked.summary.partitions
        self._troubled.pop(topic_id, None)

    def _add_up(self) -> None:
        troubled = [each for of_topic in self._troubled.values() for each in of_topic]
        first = heapq.nsmallest(
            _MAX_TROUBLED,
            troubled,
            key=lambda each: (_WORST_FIRST.index(each.trouble), each.topic, each.partition),
        )
        self.loads = {
            broker_id: BrokerLoad(self._led[broker_id], held, self._in_sync[broker_id])
            for broker_id, held in self._held.items()
            if held
        }
        self.partitions = PartitionsStatus(
            count=self._partition_count,
            offline=self._found[Trouble.OFFLINE],
            under_min_isr=self._found[Trouble.UNDER_MIN_ISR],
            under_replicated=self._found[Trouble.UNDER_REPLICATED],
            troubled=tuple(first),
        )


def _found(summary: TopicSummary) -> Mapping[Trouble, int]:
    return {
        Trouble.OFFLINE: summary.offline,
        Trouble.UNDER_MIN_ISR: summary.under_min_isr,
        Trouble.UNDER_REPLICATED: summary.under_replicated,
    }


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
