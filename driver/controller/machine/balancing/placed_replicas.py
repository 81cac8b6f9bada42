"""The replicas of all partitions, indexed by broker: the state on which moves are planned.

A partition's replicas are those of its target: a reassignment that is in progress counts as complete. So a
plan does not move again what is already on its way.

Rule: the cost of `place` and `remove` depends on the partition alone, not on the cluster's size.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias
from uuid import UUID

from sparklog.driver.controller.machine.balancing.disks import Disks
from sparklog.driver.controller.machine.balancing.leader_traffic import LeaderTraffic
from sparklog.protocol.types import BrokerId, TopicIdPartition

_ByTopic: TypeAlias = defaultdict[BrokerId, Counter[UUID]]

_SMALLEST_PART: Final = 64
_PARTS: Final = 64


class PlacedReplicas:
    def __init__(self, replicas: Mapping[TopicIdPartition, tuple[BrokerId, ...]] | None = None) -> None:
        self.replicas: dict[TopicIdPartition, tuple[BrokerId, ...]] = {}
        """Of each partition, the preferred leader first."""
        self.held: defaultdict[BrokerId, dict[TopicIdPartition, None]] = defaultdict(dict)
        """The partitions of which each broker has a replica."""
        self.led: Counter[BrokerId] = Counter()
        """The number of partitions of which each broker is the preferred leader."""
        self.disks = Disks()
        """The use of the brokers' disks with these replicas, as far as it is known."""
        self.traffic = LeaderTraffic()
        """The bytes of clients by preferred leader, as far as they are known."""
        self.held_of_topic: _ByTopic = defaultdict(Counter)
        self.led_of_topic: _ByTopic = defaultdict(Counter)
        for partition, placed in (replicas or {}).items():
            self.place(partition, placed)

    def note_time(self, now_ms: int, deleted_in_ms: int) -> None:
        """Note the time, for the age of loads, and that in which a replica's files are deleted."""
        self.disks.note_time(now_ms, deleted_in_ms)
        self.traffic.note_time(now_ms)

    def place(self, partition: TopicIdPartition, replicas: tuple[BrokerId, ...]) -> None:
        before = self.replicas.get(partition)
        if before == replicas:
            return
        if before is None:
            self.disks.created(partition, replicas)
        else:
            self.disks.placed(partition, before, replicas)
        self._remove(partition)
        if replicas:
            self.traffic.placed(partition, replicas[0])
        self.replicas[partition] = replicas
        self._count(partition, replicas, 1)
        for broker_id in replicas:
            self.held[broker_id][partition] = None

    def remove(self, partition: TopicIdPartition) -> None:
        """Remove a partition, if it is known."""
        self.disks.removed(partition, self.replicas.get(partition, ()))
        self._remove(partition)
        self.traffic.removed(partition)

    def _remove(self, partition: TopicIdPartition) -> None:
        replicas = self.replicas.pop(partition, ())
        self._count(partition, replicas, -1)
        for broker_id in replicas:
            del self.held[broker_id][partition]

    def _count(self, partition: TopicIdPartition, replicas: tuple[BrokerId, ...], times: int) -> None:
        for broker_id in replicas:
            _add(self.held_of_topic[broker_id], partition.topic_id, times)
        if replicas:
            self.led[replicas[0]] += times
            _add(self.led_of_topic[replicas[0]], partition.topic_id, times)


def _add(counts: Counter[UUID], topic_id: UUID, times: int) -> None:
    counts[topic_id] += times
    if not counts[topic_id]:
        del counts[topic_id]


def in_parts(partitions: Mapping[TopicIdPartition, object]) -> Iterator[TopicIdPartition]:
    """Yield the partitions of a mapping that changes meanwhile: some may be left out then.

    A list of all would be as long as the cluster is large, and each garbage collection would look through it.
    """
    position, size = 0, max(_SMALLEST_PART, len(partitions) // _PARTS)
    while part := list(islice(partitions, position, position + size)):
        yield from part
        position += size
