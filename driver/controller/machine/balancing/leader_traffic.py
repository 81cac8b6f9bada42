"""The bytes that clients write to leaders and read from them: measured, and moved with leaderships.

A partition's rates do not depend on its leader. So they are kept by partition, whichever broker has measured
them, and a broker's load is the sum of those that it is the preferred leader of: a change of the leader
counts at once, and nothing begins because an earlier change does not show in the figures yet.

Rules:

- Brokers report means of some minutes, of the partitions with the most bytes only; of the others a broker
  reports the sum, which stays with it.
- A partition that is no longer reported keeps its rates for `KEPT_MS`, since its new leader has not measured
  it for long enough. After that it counts as idle.
- Nothing is known (`limits`) while one of the brokers concerned has not reported for `STALE_MS`.
- A leader has too much if it has a tenth more than the mean; balancing begins at twice that, and not below
  `SMALL_RATE`. As there is no bound from below, an idle broker alone is no reason to move anything.

The bytes that a broker gets and gives as a follower do not depend on leaderships alone, and are left out. The
bounds are those of Cruise Control in kind: network.outbound.balance.threshold and its like are 1.1, and below
its low utilization thresholds nothing is balanced.

Pure. Order for the caller: `note_time` at each step; `placed` and `removed` when leaders are decided, and
`reported` at any time.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.protocol.types import BrokerId, TopicIdPartition, TopicPartition

STALE_MS: Final = 60_000
KEPT_MS: Final = 720_000
"""More than twice the time over which brokers measure."""
TOLERANCE: Final = 0.1
SMALL_RATE: Final = 1 << 20
"""Bytes per second above the mean that are no reason to begin."""


class Direction(Enum):
    IN = "in"
    OUT = "out"


class Rates(NamedTuple):
    """Bytes per second of clients, without those of followers."""

    bytes_in: int
    bytes_out: int

    def of(self, direction: Direction) -> int:
        return self.bytes_in if direction is Direction.IN else self.bytes_out

    def __sub__(self, other: "Rates") -> "Rates":
        return Rates(self.bytes_in - other.bytes_in, self.bytes_out - other.bytes_out)

    def plus(self, other: "Rates") -> "Rates":
        return Rates(self.bytes_in + other.bytes_in, self.bytes_out + other.bytes_out)


NO_TRAFFIC: Final = Rates(0, 0)


class MeasuredTraffic(NamedTuple):
    whole: Rates
    partitions: Mapping[TopicPartition, Rates]
    """The partitions with the most bytes."""
    measured_ms: int
    """The measurement is not older than this."""

    def by_id(self, topic_id: Callable[[str], UUID | None]) -> dict[TopicIdPartition, Rates]:
        """Return the partitions by topic ids, without unknown topics."""
        return {
            TopicIdPartition(found, number): rates
            for (name, number), rates in self.partitions.items()
            if (found := topic_id(name)) is not None
        }


class LeaderTraffic:
    def __init__(self) -> None:
        self._rates: dict[TopicIdPartition, Rates] = {}
        """Of partitions with a preferred leader; no others are kept."""
        self._leaders: dict[TopicIdPartition, BrokerId] = {}
        self._seen_ms: OrderedDict[TopicIdPartition, int] = OrderedDict()
        """The time of each one's last measurement, by whichever broker; the latest come last."""
        self._led: defaultdict[BrokerId, dict[TopicIdPartition, None]] = defaultdict(dict)
        self._loads: defaultdict[BrokerId, Rates] = defaultdict(lambda: NO_TRAFFIC)
        self._of_others: dict[BrokerId, Rates] = {}
        """The rest of each broker's load, of partitions that it does not report one by one."""
        self._reported_ms: dict[BrokerId, int] = {}
        self._now_ms = 0

    def note_time(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def reported(
        self,
        broker_id: BrokerId,
        whole: Rates,
        partitions: Mapping[TopicIdPartition, Rates],
        replicas: Mapping[TopicIdPartition, tuple[BrokerId, ...]],
        measured_ms: int,
    ) -> None:
        """Take over a broker's figures; `replicas` has the preferred leader of each partition first."""
        self._reported_ms[broker_id] = measured_ms
        listed = NO_TRAFFIC
        for key, rates in partitions.items():
            listed = listed.plus(rates)
            if placed := replicas.get(key, ()):
                self._put(key, rates, placed[0])
                self._seen_ms[key] = measured_ms
                self._seen_ms.move_to_end(key)
        self._expire(measured_ms - KEPT_MS)
        rest = whole - listed
        self._of_others[broker_id] = Rates(max(0, rest.bytes_in), max(0, rest.bytes_out))

    def unmeasured(self, broker_id: BrokerId) -> None:
        """Note that a broker has no figures yet: it has not run for long enough."""
        self._reported_ms.pop(broker_id, None)

    def placed(self, key: TopicIdPartition, leader: BrokerId) -> None:
        """Count a partition where it is decided to be led."""
        if key in self._rates:
            self._put(key, self._rates[key], leader)

    def removed(self, key: TopicIdPartition) -> None:
        """Forget a partition, if it is known."""
        if key in self._rates:
            self._take(key)
            del self._seen_ms[key]

    def _expire(self, oldest_ms: int) -> None:
        """Forget the partitions that were measured before that, also by brokers that have gone."""
        while self._seen_ms:
            key = next(iter(self._seen_ms))
            if self._seen_ms[key] >= oldest_ms:
                return
            self.removed(key)

    def rates_of(self, key: TopicIdPartition) -> Rates:
        return self._rates.get(key, NO_TRAFFIC)

    def busiest(self, broker_id: BrokerId, direction: Direction) -> list[TopicIdPartition]:
        """Return the partitions with traffic of a preferred leader, those with the most bytes first."""
        return sorted(self._led[broker_id], key=lambda key: (-self._rates[key].of(direction), key))

    def limits(self, brokers: Collection[BrokerId], direction: Direction) -> "TrafficLimits | None":
        """Return the bounds for the loads of brokers; None if one of them is not known."""
        return TrafficLimits(self, brokers, direction) if self.is_known(brokers) else None

    def is_known(self, brokers: Collection[BrokerId]) -> bool:
        reported_ms, oldest_ms = self._reported_ms, self._now_ms - STALE_MS
        return bool(brokers) and all(
            each in reported_ms and reported_ms[each] >= oldest_ms for each in brokers
        )

    def load(self, broker_id: BrokerId) -> Rates:
        return self._loads[broker_id].plus(self._of_others.get(broker_id, NO_TRAFFIC))

    def _put(self, key: TopicIdPartition, rates: Rates, leader: BrokerId) -> None:
        if key in self._rates:
            self._take(key)
        self._rates[key], self._leaders[key] = rates, leader
        self._led[leader][key] = None
        self._loads[leader] = self._loads[leader].plus(rates)

    def _take(self, key: TopicIdPartition) -> None:
        leader = self._leaders.pop(key)
        self._loads[leader] = self._loads[leader] - self._rates.pop(key)
        del self._led[leader][key]


class TrafficLimits:
    """The bounds for the loads of some brokers, by the means at the time of its making."""

    def __init__(self, traffic: LeaderTraffic, brokers: Collection[BrokerId], direction: Direction) -> None:
        self._traffic = traffic
        self._brokers = brokers
        self.direction = direction
        self._mean = {
            each: sum(traffic.load(broker_id).of(each) for broker_id in brokers) / len(brokers)
            for each in Direction
        }

    @property
    def are_missed(self) -> bool:
        """Whether a broker has so much more than the mean that leaderships should move."""
        mean = self._mean[self.direction]
        bound = mean + max(2 * TOLERANCE * mean, SMALL_RATE)
        return any(self.load(each) > bound for each in self._brokers)

    def load(self, broker_id: BrokerId) -> int:
        return self._traffic.load(broker_id).of(self.direction)

    def excess(self, broker_id: BrokerId) -> float:
        """Return the bytes per second that a broker has above the bound; 0 or less if it is within."""
        return self.load(broker_id) - self._upper(self.direction)

    def allow(self, source: BrokerId, target: BrokerId, given: Rates) -> bool:
        """Whether a transfer of traffic leaves its target within the bounds, or clearly below its source.

        So the sum of the squares of what is above the bounds falls with each transfer. Bytes out come after
        bytes in: they move only as far as no broker gets above the bounds of these.
        """
        added = given.of(self.direction)
        bound = max(self._upper(self.direction), self.load(source) - added / 2)
        if added <= 0 or self.load(target) + added > bound:
            return False
        if self.direction is Direction.IN:
            return True
        taken = NO_TRAFFIC - given
        return self._has_room(target, given, Direction.IN) and self._has_room(source, taken, Direction.IN)

    def _has_room(self, broker_id: BrokerId, more: Rates, direction: Direction) -> bool:
        added = more.of(direction)
        return added <= 0 or self._traffic.load(broker_id).of(direction) + added <= self._upper(direction)

    def _upper(self, direction: Direction) -> float:
        mean = self._mean[direction]
        return mean + max(TOLERANCE * mean, SMALL_RATE / 2)
