"""The goals of balancing, the stronger first, each with its search and the test of whether it is missed.

Searches begin only for goals that are missed by more than they leave (`is_uneven`, `DiskLimits.are_missed`,
`TrafficLimits.are_missed`), so a balanced cluster stays as it is. The strongest goal of all, replicas on
brokers that stay, is not in the list: it does not wait for balancing (`moves_off`).
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from sparklog.driver.controller.machine.balancing.leader_traffic import Direction
from sparklog.driver.controller.machine.balancing.moves import (
    Goal,
    Search,
    Surroundings,
    changes_of_preferred_leaders,
    is_uneven,
    moves_between_racks,
    moves_to_emptier_disks,
    moves_to_lighter_brokers,
)
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.balancing.traffic_moves import moves_to_less_busy_leaders


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
