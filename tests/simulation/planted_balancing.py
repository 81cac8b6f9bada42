"""Bugs of healing and balancing that the simulator must find; see `planted`."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sparklog.driver.controller.machine.balancing import balancer, goals, moves
from sparklog.driver.controller.machine.balancing.copy_slots import CopySlots
from sparklog.driver.controller.machine.balancing.disks import Disks
from sparklog.driver.controller.machine.balancing.leader_traffic import LeaderTraffic, TrafficLimits
from sparklog.driver.controller.machine.balancing.moves import Move, Search
from sparklog.protocol.types import BrokerId, TopicIdPartition
from tests.simulation.balancing import BALANCING_SEEDS, LOAD_SEEDS
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


def _measured_amid_moves() -> Sequence[Replacement]:
    return [Replacement(Disks, "_is_settled", lambda self, broker_id, report: True)]


def _numbers_before_disks() -> Sequence[Replacement]:
    return [Replacement(moves._Lighter, "has_disk_for", lambda self, partition, source, target: True)]


def _busy_leaders_forgotten() -> Sequence[Replacement]:
    return [Replacement(LeaderTraffic, "placed", lambda self, key, leader: None)]


def _bytes_turned_around() -> Sequence[Replacement]:
    return [
        Replacement(TrafficLimits, "allow", lambda self, source, target, given: True),
        Replacement(TrafficLimits, "are_missed", True),
    ]


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
    "measured-amid-moves": PlantedBug(
        "a disk counts as full as it is while replicas are copied to it, or not yet deleted",
        _measured_amid_moves,
        LOAD_SEEDS[:100],
    ),
    "numbers-before-disks": PlantedBug(
        "a move for equal numbers of replicas is made without a look at disks",
        _numbers_before_disks,
        LOAD_SEEDS[:100],
    ),
    "leaderships-not-counted": PlantedBug(
        "a leader's traffic counts where it was measured until it is measured elsewhere",
        _busy_leaders_forgotten,
        LOAD_SEEDS[:100],
    ),
    "bytes-turned-around": PlantedBug(
        "a leadership moves for a difference that the move only turns around",
        _bytes_turned_around,
        LOAD_SEEDS[:100],
    ),
}
"""By name."""
