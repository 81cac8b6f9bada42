"""Moves of replicas that bring a cluster nearer to its goals.

A search is a generator: it yields a move, or None after a look that found none, so that its caller decides
how much work is done at a time and may go on later. The caller applies each move (`PlacedReplicas.place`)
before it takes the next one.

The goals, the stronger first; no move for one of them harms a stronger one:

1. No replica is on a broker that is lost or leaves (`moves_off`), as long as there are brokers for all
   replicas of its partition: a move replaces a replica, it never removes one. The new ones are in racks
   without any as long as there are such racks, so the next goal suffers from none of these moves.
2. No rack holds two replicas of a partition while there are racks without one (`moves_between_racks`).
3. No broker's disks are too full, or much fuller than those of others (`moves_to_emptier_disks`). Where their
   use is not known there is no such goal.
4. Brokers hold equal numbers of replicas, and of each topic's where that is no further move
   (`moves_to_lighter_brokers`).
5. Brokers are the preferred leaders of equal numbers of partitions (`changes_of_preferred_leaders`). This
   copies nothing: the order of the replicas changes.
6. Clients write equally many bytes to brokers, and then read equally many from them
   (`goals`). This copies nothing either: a leadership moves, or two change places.
   Where the traffic is not known there are no such goals.

Searches end: a move of the first two lowers the number of violations, one of the third the bytes outside of
the bounds (`disks`), one of the next two lowers the sum of the squares of the brokers' numbers; one of the
last, or two together, lower the squares of the bytes outside of their bounds (`leader_traffic`), and raise no
sum of squares. `is_uneven` decides whether a search for equal numbers is worth a move: it allows more
difference than they leave, so that a balanced cluster stays as it is. So do the bounds of disks and of
traffic.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from sparklog.driver.controller.machine.balancing.disks import DiskLimits
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas, in_parts
from sparklog.protocol.types import BrokerId, TopicIdPartition


class Goal(Enum):
    ONLINE_REPLICAS = "replicas on brokers that stay"
    RACKS = "replicas in different racks"
    DISKS = "disks equally full"
    REPLICAS = "equal numbers of replicas"
    LEADERS = "equal numbers of leaders"
    BYTES_IN = "equally many bytes in"
    BYTES_OUT = "equally many bytes out"


class Move(NamedTuple):
    partition: TopicIdPartition
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    """The replicas, the preferred leader first."""
    goal: Goal

    @property
    def added(self) -> tuple[BrokerId, ...]:
        """The brokers that copy the partition."""
        return tuple(each for each in self.after if each not in self.before)


Search: TypeAlias = Iterator[Move | None]

_SMALLEST_DIFFERENCE: Final = 2
"""Below it a move from one broker to the other makes no difference smaller."""
_LOOKS_BEFORE_COUNTING_AGAIN: Final = 64
_QUICK_LOOKS: Final = 16
"""Looks at partitions that turn out not to move, which count as one."""
_LIGHTER_IN_A_RACK: Final = 2
"""The lightest brokers of a rack that are looked at for a replica, beside those that may have one."""
SMALLEST_PART_OF_EXCESS: Final = 1_000
"""Replicas that are a smaller part of the bytes that a broker has too many of are not worth a move."""
_ALLOWED_DIFFERENCE: Final = 2
_ALLOWED_SHARE: Final = 0.2
"""The largest difference between two brokers of a balanced cluster, as a part of the mean."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The brokers among which replicas move, and what must not move now."""

    racks: Mapping[BrokerId, str | None]
    """The brokers that may get replicas, each with its rack."""
    may_move: Callable[[TopicIdPartition], bool] = lambda _: True
    is_busy: Callable[[BrokerId], bool] = lambda _: False
    """Whether a broker copies as many partitions as it may; moves to it are found later."""
    is_stuck: Callable[[BrokerId], bool] = lambda _: False
    """Whether a broker, busy too, may be so for long; replicas that must move go to others."""
    racks_of_others: Mapping[BrokerId, str | None] = field(default_factory=dict)
    """The racks of brokers that get no replicas, such as those that are away for a while."""

    def rack_of(self, broker_id: BrokerId) -> str | None:
        """Return the rack of a broker that may get replicas or of another one; None if it is not known."""
        return self.racks[broker_id] if broker_id in self.racks else self.racks_of_others.get(broker_id)


def is_uneven(numbers: Collection[int]) -> bool:
    """Whether the brokers' numbers of replicas, or of leaders, differ by more than a balanced cluster's."""
    if not numbers:
        return False
    mean = sum(numbers) / len(numbers)
    return max(numbers) - min(numbers) > max(_ALLOWED_DIFFERENCE, _ALLOWED_SHARE * mean)


def moves_off(
    placed: PlacedReplicas,
    surroundings: Surroundings,
    leaving: Collection[BrokerId],
    emptied: Collection[BrokerId] | None = None,
) -> Search:
    """Search for moves that empty the brokers `leaving`, which are none of those that may get replicas.

    Only some of them are emptied if these are given. A move replaces all of a partition's replicas on brokers
    that leave: with one of them left it could never be complete.
    """
    for broker_id in sorted(leaving if emptied is None else emptied):
        for partition in list(placed.held.get(broker_id, ())):
            replicas = placed.replicas.get(partition, ())
            if broker_id not in replicas or not surroundings.may_move(partition):
                yield None
                continue
            replaced = [each for each in replicas if each in leaving]
            yield _replaced(placed, surroundings, partition, replaced, Goal.ONLINE_REPLICAS)


def moves_between_racks(placed: PlacedReplicas, surroundings: Surroundings) -> Search:
    """Search for moves of replicas whose rack has another replica of the partition to a rack without one."""
    racks_of = surroundings.racks
    all_racks = set(racks_of.values())
    for looks, partition in enumerate(in_parts(placed.replicas)):
        if looks % _QUICK_LOOKS == 0:
            yield None
        replicas = placed.replicas.get(partition, ())
        racks = [racks_of[each] for each in replicas if each in racks_of]
        if len(set(racks)) == len(racks) or set(racks) >= all_racks or not surroundings.may_move(partition):
            continue
        crowded = {rack for rack, replicas_there in Counter(racks).items() if replicas_there > 1}
        shared = [each for each in replicas if each in racks_of and racks_of[each] in crowded]
        heaviest = max(shared, key=lambda each: (len(placed.held.get(each, ())), each))
        yield _replaced(placed, surroundings, partition, [heaviest], Goal.RACKS)


def moves_to_emptier_disks(placed: PlacedReplicas, surroundings: Surroundings) -> Search:
    """Search for moves from brokers with full disks to those with the emptiest, of few and large replicas.

    Each moves the largest replica that leaves both brokers within the bounds, so that the least is copied.
    """
    disks, racks = placed.disks, surroundings.racks
    limits = disks.limits(racks)
    if limits is None:
        return
    shares = {each: limits.share_of(each) for each in racks}
    for source in sorted(racks, key=lambda each: (-shares[each], each)):
        for looks, (size_bytes, partition) in enumerate(disks.largest(source)):
            yield None  # each may look at all brokers
            if looks % _QUICK_LOOKS == 0:
                limits = disks.limits(racks)
                if limits is None:
                    return
            if size_bytes * SMALLEST_PART_OF_EXCESS < limits.excess_bytes(source):
                break
            if not _has_too_much(limits, source, racks):
                break
            if source in placed.replicas.get(partition, ()):
                move = _emptied(placed, surroundings, partition, source, limits)
                if move is not None and surroundings.may_move(partition):
                    yield move


def _has_too_much(limits: DiskLimits, source: BrokerId, racks: Collection[BrokerId]) -> bool:
    if limits.is_over(source):
        return True
    return limits.excess_bytes(source) > 0 and any(map(limits.is_under, racks))


def _emptied(
    placed: PlacedReplicas,
    surroundings: Surroundings,
    partition: TopicIdPartition,
    source: BrokerId,
    limits: DiskLimits,
) -> Move | None:
    """Return the move of a broker's replica to the emptiest disks that need it, or have room for it."""
    racks, replicas = surroundings.racks, placed.replicas[partition]
    others = Counter(racks[each] for each in replicas if each != source and each in racks)
    size_bytes = placed.disks.size_of(partition, replicas)
    fits = [
        each
        for each in racks
        if each not in replicas
        and others[racks[each]] <= others[racks[source]]
        and not limits.share_pool(source, each)
        and (limits.is_over(source) or limits.is_under(each))
        and limits.allow(source, each, size_bytes)
        and not surroundings.is_busy(each)
    ]
    if not fits:
        return None
    best = min(fits, key=lambda each: (limits.share_of(each), each))
    after = tuple(best if each == source else each for each in replicas)
    return Move(partition, replicas, after, Goal.DISKS)


def moves_to_lighter_brokers(placed: PlacedReplicas, surroundings: Surroundings) -> Search:
    """Search for moves from brokers with many replicas to those with few, always from the heaviest."""

    def weight(broker_id: BrokerId) -> int:
        return len(placed.held.get(broker_id, ()))

    def moves_from(broker_id: BrokerId) -> Search:
        for evens_topic in (True, False):
            lighter = _Lighter(placed, surroundings, weight)
            for looks, partition in enumerate(in_parts(placed.held[broker_id])):
                if looks % _QUICK_LOOKS == 0:
                    yield None
                if not lighter.than(broker_id):
                    return
                if broker_id in placed.replicas.get(partition, ()):
                    move = _lightened(placed, surroundings, partition, broker_id, lighter, evens_topic)
                    if move is not None and surroundings.may_move(partition):
                        lighter.count_again()
                        yield move

    return _in_turn({each: moves_from(each) for each in surroundings.racks}, weight)


def changes_of_preferred_leaders(placed: PlacedReplicas, surroundings: Surroundings) -> Search:
    """Search for moves that make another replica the preferred leader, always for the one that leads least.

    First from brokers that lead more than the mean, so that what a broker gets need not be taken back.
    """
    led, racks = placed.led, surroundings.racks
    mean = sum(led[each] for each in racks) / max(1, len(racks))

    def moves_for(broker_id: BrokerId) -> Search:
        for least, evens_topic in ((mean, True), (mean, False), (0, False)):
            for looks, partition in enumerate(in_parts(placed.held[broker_id])):
                if looks % _QUICK_LOOKS == 0:
                    yield None
                    if not any(led[each] - led[broker_id] >= _SMALLEST_DIFFERENCE for each in racks):
                        return
                replicas = placed.replicas.get(partition, ())
                if broker_id not in replicas or led[replicas[0]] <= least or replicas[0] not in racks:
                    continue
                move = _led_by(placed, partition, broker_id, evens_topic)
                if move is not None and surroundings.may_move(partition):
                    yield move

    return _in_turn({each: moves_for(each) for each in racks}, lambda each: -led[each])


def _in_turn(searches: dict[BrokerId, Search], weight: Callable[[BrokerId], int]) -> Search:
    """Take the next move of the broker that is the heaviest after each; drop those without further moves."""
    while searches:
        heaviest = max(searches, key=lambda each: (weight(each), -each))
        for move in searches[heaviest]:
            yield move
            if move is not None:
                break
        else:
            del searches[heaviest]


class _Lighter:
    """The brokers that may get replicas by rack, the lightest first; counted again after some looks."""

    def __init__(
        self, placed: PlacedReplicas, surroundings: Surroundings, weight: Callable[[BrokerId], int]
    ) -> None:
        self._placed = placed
        self._surroundings = surroundings
        self._weight = weight
        self._looks = 0
        self.by_rack: dict[str | None, list[BrokerId]] = {}
        self._disk_limits: DiskLimits | None = None

    def than(self, broker_id: BrokerId) -> bool:
        """Whether there are brokers that are lighter than this one, so that a move to them helps."""
        if self._looks % _LOOKS_BEFORE_COUNTING_AGAIN == 0:
            self._count(self._weight(broker_id) - _SMALLEST_DIFFERENCE)
        self._looks += 1
        return bool(self.by_rack)

    def count_again(self) -> None:
        """Count at the next look: a move has changed the weights."""
        self._looks = 0

    def _count(self, largest: int) -> None:
        self.by_rack = {}
        racks, weight = self._surroundings.racks, self._weight
        self._disk_limits = limits = self._placed.disks.limits(racks)
        for each in sorted(racks, key=lambda each: (weight(each), each)):
            if weight(each) > largest or self._surroundings.is_busy(each):
                continue
            if limits is None or not limits.is_over(each):
                self.by_rack.setdefault(racks[each], []).append(each)

    def has_disk_for(self, partition: TopicIdPartition, source: BrokerId, target: BrokerId) -> bool:
        """Whether the goal of disks allows a move, as far as their use is known."""
        limits, placed = self._disk_limits, self._placed
        if limits is None:
            return True
        return limits.allow(source, target, placed.disks.size_of(partition, placed.replicas[partition]))


def _lightened(
    placed: PlacedReplicas,
    surroundings: Surroundings,
    partition: TopicIdPartition,
    source: BrokerId,
    lighter: _Lighter,
    evens_topic: bool,
) -> Move | None:
    """Return the move of a broker's replica to the lightest broker that no stronger goal forbids."""
    racks, replicas, topic_id = surroundings.racks, placed.replicas[partition], partition.topic_id
    others = Counter(racks[each] for each in replicas if each != source and each in racks)
    most = others[racks[source]]
    of_source = placed.held_of_topic[source][topic_id]
    best: tuple[int, BrokerId] | None = None
    for rack, brokers in lighter.by_rack.items():
        if others[rack] > most:
            continue
        for each in brokers[: _LIGHTER_IN_A_RACK + len(replicas)]:
            if each in replicas or (evens_topic and placed.held_of_topic[each][topic_id] >= of_source):
                continue
            if not lighter.has_disk_for(partition, source, each):
                continue
            found = (len(placed.held.get(each, ())), each)
            best = found if best is None else min(best, found)
            break
    if best is None:
        return None
    after = tuple(best[1] if each == source else each for each in replicas)
    return Move(partition, replicas, after, Goal.REPLICAS)


def _led_by(
    placed: PlacedReplicas, partition: TopicIdPartition, broker_id: BrokerId, evens_topic: bool
) -> Move | None:
    leader, topic_id, of_topic = placed.replicas[partition][0], partition.topic_id, placed.led_of_topic
    if placed.led[leader] - placed.led[broker_id] < _SMALLEST_DIFFERENCE:
        return None
    if evens_topic and of_topic[broker_id][topic_id] >= of_topic[leader][topic_id]:
        return None
    return leading_instead(placed, partition, broker_id, Goal.LEADERS)


def leading_instead(
    placed: PlacedReplicas, partition: TopicIdPartition, broker_id: BrokerId, goal: Goal
) -> Move:
    replicas = placed.replicas[partition]
    swapped = {replicas[0]: broker_id, broker_id: replicas[0]}
    return Move(partition, replicas, tuple(swapped.get(each, each) for each in replicas), goal)


def _replaced(
    placed: PlacedReplicas,
    surroundings: Surroundings,
    partition: TopicIdPartition,
    replaced: Collection[BrokerId],
    goal: Goal,
) -> Move | None:
    """Return the move of replicas to the best brokers; None if these are too few, or if one is busy."""
    racks, replicas = surroundings.racks, placed.replicas[partition]
    is_optional = goal is not Goal.ONLINE_REPLICAS
    free = {
        each for each in racks if each not in replicas and (is_optional or not surroundings.is_stuck(each))
    }
    if len(free) < len(replaced):
        return None
    taken = Counter(surroundings.rack_of(each) for each in replicas if each not in replaced)
    size_bytes = placed.disks.size_of(partition, replicas)
    best_for: dict[BrokerId, BrokerId] = {}
    for replica in replaced:
        best = min(
            free,
            key=lambda each: (
                taken[racks[each]],
                placed.disks.is_too_full_for(each, size_bytes),
                len(placed.held.get(each, ())),
                placed.held_of_topic[each][partition.topic_id],
                each,
            ),
        )
        if surroundings.is_busy(best):
            return None
        free.remove(best)
        taken[racks[best]] += 1
        best_for[replica] = best
    return Move(partition, replicas, tuple(best_for.get(each, each) for each in replicas), goal)
