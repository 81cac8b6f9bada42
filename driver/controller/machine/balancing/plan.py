"""The moves that would balance a cluster, all at once: a dry run.

It finds the moves of `balancer`, without its bounds on their number at a time.
"""

from collections.abc import Callable, Collection

from sparklog.driver.controller.machine.balancing.goals import GOALS
from sparklog.driver.controller.machine.balancing.moves import Move, Search, Surroundings, moves_off
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.protocol.types import BrokerId, TopicIdPartition


def plan(placed: PlacedReplicas, surroundings: Surroundings, leaving: Collection[BrokerId]) -> list[Move]:
    """Carry out all moves in `placed`; return each moved partition once, with its first and last replicas.

    `leaving` are brokers that are away, or about to be removed. A cluster that is balanced has no moves.
    """
    moves: dict[TopicIdPartition, Move] = {}

    def carry_out(search: Callable[[PlacedReplicas, Surroundings], Search]) -> None:
        found = True
        while found:
            found = False
            for move in search(placed, surroundings):
                if move is not None:
                    found = True
                    placed.place(move.partition, move.after)
                    first = moves.get(move.partition, move)
                    moves[move.partition] = first._replace(after=move.after)

    carry_out(lambda placed, surroundings: moves_off(placed, surroundings, leaving))
    for goal in GOALS:
        if goal.is_missed(placed, surroundings):
            carry_out(goal.search)
    return [move for move in moves.values() if move.before != move.after]
