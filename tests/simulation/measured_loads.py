"""The use of simulated brokers' disks as they report it: late, with copies under way and deleted files.

So is the traffic of their leaders, without partitions that a broker has just begun to lead. Each partition
has a size and a traffic of its own, which no record changes, so that few records are as good as large topics.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from sparklog.driver.controller.machine.balancing.disks import DiskReport, DiskVolume, MeasuredDisks
from sparklog.driver.controller.machine.balancing.goals import GOALS
from sparklog.driver.controller.machine.balancing.leader_traffic import MeasuredTraffic, Rates
from sparklog.driver.controller.machine.balancing.moves import Goal, Surroundings
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId, TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from tests.simulation.cluster import World

DELETE_DELAY_MS: Final = 400
REPORT_INTERVAL_MS: Final = 300
_CAPACITIES: Final = (1_000, 1_000, 1_600)
"""By the broker's id."""
_SIZES: Final = (150, 10, 80, 10, 100, 10)
"""By the partition's number. New partitions are placed in turn, so some brokers get the large ones."""
_MIB: Final = 1 << 20
_TRAFFIC: Final = (
    Rates(12 * _MIB, 0),
    Rates(_MIB, 9 * _MIB),
    Rates(0, 0),
    Rates(6 * _MIB, 6 * _MIB),
    Rates(2 * _MIB, 20 * _MIB),
    Rates(0, _MIB),
)
"""In bytes per second, by the partition's number."""


def size_of(partition: int) -> int:
    return _SIZES[partition % len(_SIZES)]


def traffic_of(partition: int) -> Rates:
    return _TRAFFIC[partition % len(_TRAFFIC)]


class LoadMeter:
    """The loads of all brokers. Deletions are noticed at the next `look`, so callers look often."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._logs: set[tuple[BrokerId, TopicIdPartition]] = set()
        self._deleted_at_ms: dict[tuple[BrokerId, TopicIdPartition], int] = {}
        self._led: dict[BrokerId, tuple[int, set[TopicIdPartition]]] = {}
        """The partitions that each broker led at its last report, and the number of its incarnation."""

    def look(self) -> None:
        """Note the logs that are there, and those that went: their files stay for a while."""
        now_ms = self._world.scheduler.now_ms
        logs = {(each, key) for each, disk in self._world.disks.items() for key in disk.logs}
        self._deleted_at_ms |= dict.fromkeys(self._logs - logs, now_ms + DELETE_DELAY_MS)
        self._logs = logs
        self._deleted_at_ms = {
            each: at_ms for each, at_ms in self._deleted_at_ms.items() if at_ms > now_ms and each not in logs
        }

    def disks(self, broker_id: BrokerId, image: MetadataImage, driver_ms: int) -> MeasuredDisks:
        """Return the use of a broker's disks, by the names in an image; `driver_ms` is the driver's time."""
        there = sorted(key for each, key in (*self._logs, *self._deleted_at_ms) if each == broker_id)
        topics = image.topics.by_id
        sizes = {
            TopicPartition(topics[key.topic_id].name, key.partition): size_of(key.partition)
            for key in there
            if key.topic_id in topics
        }
        return MeasuredDisks(_volumes(broker_id, there), sizes, driver_ms)

    def traffic(self, broker_id: BrokerId, image: MetadataImage, driver_ms: int) -> MeasuredTraffic | None:
        """Return the traffic of the leaders that a broker had at its last report, too; None at its first."""
        incarnation = self._world.brokers[broker_id].incarnation
        led = {key for key, partition in image.topics.partitions() if partition.leader == broker_id}
        before, self._led[broker_id] = self._led.get(broker_id), (incarnation, led)
        if before is None or before[0] != incarnation:
            return None
        topics = image.topics.by_id
        rates = {
            TopicPartition(topics[key.topic_id].name, key.partition): traffic_of(key.partition)
            for key in sorted(led & before[1])
        }
        return MeasuredTraffic(sum_of(rates.values()), rates, driver_ms)


def sum_of(rates: Iterable[Rates]) -> Rates:
    return reduce(Rates.plus, rates, Rates(0, 0))


def _volumes(broker_id: BrokerId, there: Collection[TopicIdPartition]) -> Mapping[Hashable, DiskVolume]:
    used = sum(size_of(key.partition) for key in there)
    capacity = _CAPACITIES[broker_id % len(_CAPACITIES)]
    return {broker_id: DiskVolume(used, max(0, capacity - used))}


def unbalanced_goal(image: MetadataImage) -> Goal | None:
    """Return a goal that is missed by the true loads although a move would help."""
    placed = PlacedReplicas()
    for key, partition in image.topics.partitions():
        placed.place(key, partition.replicas)
    placed.disks.note_time(0, 0)
    for broker_id in image.brokers:
        sizes = {key: size_of(key.partition) for key in placed.held[broker_id]}
        placed.disks.reported(broker_id, DiskReport(_volumes(broker_id, sizes), sizes, 0, 0))
        led = [key for key in placed.held[broker_id] if placed.replicas[key][0] == broker_id]
        rates = {key: traffic_of(key.partition) for key in led}
        placed.traffic.reported(broker_id, sum_of(rates.values()), rates, placed.replicas, 0)
    racks = {each: broker.rack for each, broker in image.brokers.items()}
    # Partitions that wait for lost disks have no leader to copy from, for ever.
    led = {key for key, partition in image.topics.partitions() if partition.leader is not None}
    surroundings = Surroundings(racks, may_move=lambda key: key in led)
    for goal in GOALS:
        if goal.is_missed(placed, surroundings) and any(goal.search(placed, surroundings)):
            return goal.goal
    return None
