"""The moves that would balance a cluster, all at once: a dry run.

It finds the moves of `balancer`, without its bounds on their number at a time.
"""

from collections.abc import Callable, Collection

from sparklog.driver.controller.machine.balancing.goals import GOALS
from sparklog.driver.controller.machine.balancing.moves import Goal, Move, Search, Surroundings, moves_off
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.protocol.types import BrokerId, TopicIdPartition


def plan(placed: PlacedReplicas, surroundings: Surroundings, leaving: Collection[BrokerId]) -> list[Move]:
    """Carry out all moves in `placed`; return each moved partition once, with its first and last replicas.

    `leaving` are brokers that are away, or about to be removed. A cluster that is balanced has no moves.
    """
    moves: dict[TopicIdPartition, Move] = {}

    def carry_out(search: Callable[[PlacedReplicas, Surroundings], Search]) -> bool:
        count, found = 0, True
        while found:
            found = False
            for move in search(placed, surroundings):
                if move is not None:
                    found, count = True, count + 1
                    placed.place(move.partition, move.after)
                    first = moves.get(move.partition, move)
                    moves[move.partition] = first._replace(after=move.after)
        return count > 0

    carry_out(lambda placed, surroundings: moves_off(placed, surroundings, leaving))
    pursued: set[Goal] = set()
    is_any_found = True
    while is_any_found:
        # A move for a weaker goal may make one for a stronger goal possible.
        is_any_found = False
        for goal in GOALS:
            if goal.is_missed(placed, surroundings):
                pursued.add(goal.goal)
            if goal.goal in pursued and carry_out(goal.search):
                is_any_found = True
    return [move for move in moves.values() if move.before != move.after]
