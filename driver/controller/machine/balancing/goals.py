"""The goals of balancing, the stronger first, each with its search and the test of whether it is missed.

Searches begin only for goals that are missed by more than they leave (`is_uneven`, `DiskLimits.are_missed`,
`TrafficLimits.are_missed`), so a balanced cluster stays as it is. The strongest goal of all, replicas on
brokers that stay, is not in the list: it does not wait for balancing (`moves_off`).

Changes of preferred leaders for the goals of bytes in and bytes out; see `moves` for what a search is.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from sparklog.driver.controller.machine.balancing.leader_traffic import Direction, TrafficLimits
from sparklog.driver.controller.machine.balancing.moves import (
    SMALLEST_PART_OF_EXCESS,
    Goal,
    Move,
    Search,
    Surroundings,
    changes_of_preferred_leaders,
    is_uneven,
    leading_instead,
    moves_between_racks,
    moves_to_emptier_disks,
    moves_to_lighter_brokers,
)
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.protocol.types import BrokerId, TopicIdPartition

_PARTNERS_LOOKED_AT: Final = 256
"""The partitions that are looked at for one that a broker may lead in exchange; it takes some 0.2 ms."""


def moves_to_less_busy_leaders(
    placed: PlacedReplicas, surroundings: Surroundings, direction: Direction
) -> Search:
    """Search for leaderships that busy brokers can give to others, of few partitions with many bytes.

    A broker that leads no more partitions than the other gets one with fewer bytes in exchange, so numbers of
    leaders stay as equal as they are: then two moves follow each other.
    """
    traffic, racks = placed.traffic, surroundings.racks
    limits = traffic.limits(racks, direction)
    if limits is None:
        return
    loads = {each: limits.load(each) for each in racks}
    for source in sorted(racks, key=lambda each: (-loads[each], each)):
        for partition in traffic.busiest(source, direction):
            yield None
            excess = limits.excess(source)
            if excess <= 0 or traffic.rates_of(partition).of(direction) * SMALLEST_PART_OF_EXCESS < excess:
                break
            yield from _handed_over(placed, surroundings, limits, partition, source)


def _handed_over(
    placed: PlacedReplicas,
    surroundings: Surroundings,
    limits: TrafficLimits,
    partition: TopicIdPartition,
    source: BrokerId,
) -> Iterator[Move]:
    """Yield the moves by which the least busy replica leads instead of `source`; none if there are none."""
    replicas = placed.replicas.get(partition, ())
    goal = Goal.BYTES_IN if limits.direction is Direction.IN else Goal.BYTES_OUT
    if not replicas or replicas[0] != source:
        return
    rates = placed.traffic.rates_of(partition)
    for target in sorted(replicas[1:], key=lambda each: (limits.load(each), each)):
        if target not in surroundings.racks:
            continue
        if placed.led[source] > placed.led[target]:
            if limits.allow(source, target, rates) and surroundings.may_move(partition):
                yield leading_instead(placed, partition, target, goal)
                return
            continue
        partner = _exchanged(placed, surroundings, limits, partition, source, target)
        if partner is not None and surroundings.may_move(partition):
            theirs = placed.replicas[partner]
            yield leading_instead(placed, partition, target, goal)
            if placed.replicas.get(partner) == theirs and surroundings.may_move(partner):
                yield leading_instead(placed, partner, source, goal)
            return


def _exchanged(
    placed: PlacedReplicas,
    surroundings: Surroundings,
    limits: TrafficLimits,
    partition: TopicIdPartition,
    source: BrokerId,
    target: BrokerId,
) -> TopicIdPartition | None:
    """Return a partition that `source` can lead for `target` in exchange, with half as many bytes at most."""
    traffic, direction = placed.traffic, limits.direction
    rates = traffic.rates_of(partition)
    if not rates.of(direction):
        return None
    for other in islice(placed.held[source], _PARTNERS_LOOKED_AT):
        replicas, theirs = placed.replicas[other], traffic.rates_of(other)
        if (
            replicas[0] == target
            and 2 * theirs.of(direction) <= rates.of(direction)
            and limits.allow(source, target, rates - theirs)
            and surroundings.may_move(other)
        ):
            return other
    return None


class PursuedGoal(NamedTuple):
    goal: Goal
    is_missed: Callable[[PlacedReplicas, Surroundings], bool]
    search: Callable[[PlacedReplicas, Surroundings], Search]
    awaits_copies: bool = True
    """Whether its search waits until all moves for stronger goals are complete."""


def _has_uneven_disks(placed: PlacedReplicas, surroundings: Surroundings) -> bool:
    limits = placed.disks.limits(surroundings.racks)
    return limits is not None and limits.are_missed


def _has_uneven_replicas(placed: PlacedReplicas, surroundings: Surroundings) -> bool:
    return is_uneven([len(placed.held.get(each, ())) for each in surroundings.racks])


def _has_uneven_leaders(placed: PlacedReplicas, surroundings: Surroundings) -> bool:
    return is_uneven([placed.led[each] for each in surroundings.racks])


def _is_missed_by(direction: Direction) -> Callable[[PlacedReplicas, Surroundings], bool]:
    def is_missed(placed: PlacedReplicas, surroundings: Surroundings) -> bool:
        limits = placed.traffic.limits(surroundings.racks, direction)
        return limits is not None and limits.are_missed

    return is_missed


def _for_bytes(goal: Goal, direction: Direction) -> PursuedGoal:
    return PursuedGoal(
        goal, _is_missed_by(direction), partial(moves_to_less_busy_leaders, direction=direction)
    )


GOALS: Final = (
    PursuedGoal(Goal.RACKS, lambda _placed, _surroundings: True, moves_between_racks, awaits_copies=False),
    PursuedGoal(Goal.DISKS, _has_uneven_disks, moves_to_emptier_disks, awaits_copies=False),
    PursuedGoal(Goal.REPLICAS, _has_uneven_replicas, moves_to_lighter_brokers, awaits_copies=False),
    PursuedGoal(Goal.LEADERS, _has_uneven_leaders, changes_of_preferred_leaders),
    _for_bytes(Goal.BYTES_IN, Direction.IN),
    _for_bytes(Goal.BYTES_OUT, Direction.OUT),
)
