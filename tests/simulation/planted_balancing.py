"""Bugs of healing and balancing that the simulator must find; see `planted`."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sparklog.driver.controller.machine.balancing import balancer, goals, moves
from sparklog.driver.controller.machine.balancing.copy_slots import CopySlots
from sparklog.driver.controller.machine.balancing.moves import Move, Search
from sparklog.protocol.types import BrokerId, TopicIdPartition
from tests.simulation.balancing import BALANCING_SEEDS
from tests.simulation.planted_bug import PlantedBug, Replacement


def _lost_replica_dropped() -> Sequence[Replacement]:
    moves_off = balancer.moves_off

    def drop(placed: Any, surroundings: Any, *brokers: Collection[BrokerId]) -> Search:
        for move in moves_off(placed, surroundings, *brokers):
            after = () if move is None else tuple(each for each in move.after if each in move.before)
            yield move._replace(after=after) if move is not None and after else move

    return [Replacement(balancer, "moves_off", drop)]


def _moved_there_and_back() -> Sequence[Replacement]:
    return [
        Replacement(moves, "_SMALLEST_DIFFERENCE", 1),
        Replacement(goals, "is_uneven", lambda numbers: True),
    ]


def _copies_not_counted_down() -> Sequence[Replacement]:
    note = CopySlots.note

    def forget(self: CopySlots, key: TopicIdPartition, broker_ids: tuple[BrokerId, ...], now_ms: int) -> bool:
        taken = self._taken.copy()
        is_other = note(self, key, broker_ids, now_ms)
        self._taken |= taken
        return is_other

    return [Replacement(CopySlots, "note", forget)]


def _racks_not_parted() -> Sequence[Replacement]:
    def replaced(placed: Any, surroundings: Any, partition: Any, old: Any, goal: Any) -> Move | None:
        replicas = placed.replicas[partition]
        free = [each for each in surroundings.racks if each not in replicas]
        if len(free) < len(old) or goal is moves.Goal.RACKS:
            return None
        best = dict(zip(old, sorted(free, reverse=True), strict=False))
        after = tuple(best.get(each, each) for each in replicas)
        return Move(partition, replicas, after, goal)

    return [Replacement(moves, "_replaced", replaced)]


BALANCING_BUGS: Final = {
    "lost-replica-dropped": PlantedBug(
        "a lost broker's replica is taken away, and none is placed elsewhere",
        _lost_replica_dropped,
        BALANCING_SEEDS[:100],
    ),
    "moved-there-and-back": PlantedBug(
        "a replica is moved for a difference that the move only turns around",
        _moved_there_and_back,
        BALANCING_SEEDS[:100],
    ),
    "copies-not-counted-down": PlantedBug(
        "a broker that has copied five partitions counts as busy for ever",
        _copies_not_counted_down,
        BALANCING_SEEDS[:100],
    ),
    "racks-not-parted": PlantedBug(
        "a lost broker's replica is placed without a look at racks", _racks_not_parted, BALANCING_SEEDS[:100]
    ),
}
"""By name."""
