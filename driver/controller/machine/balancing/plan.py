"""The moves that would balance a cluster, all at once: a dry run.

It finds the moves of `balancer`, without its bounds on their number at a time.
"""

from collections.abc import Callable, Collection

from sparklog.driver.controller.machine.balancing.moves import (
    Move,
    Search,
    Surroundings,
    changes_of_preferred_leaders,
    is_uneven,
    moves_between_racks,
    moves_off,
    moves_to_lighter_brokers,
)
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.protocol.types import BrokerId, TopicIdPartition


def plan(placed: PlacedReplicas, surroundings: Surroundings, leaving: Collection[BrokerId]) -> list[Move]:
    """Carry out all moves in `placed`; return each moved partition once, with its first and last replicas.

    `leaving` are brokers that are away, or about to be removed. A cluster that is balanced has no moves.
    """
    moves: dict[TopicIdPartition, Move] = {}

    def carry_out(search: Callable[[], Search]) -> None:
        found = True
        while found:
            found = False
            for move in search():
                if move is not None:
                    found = True
                    placed.place(move.partition, move.after)
                    first = moves.get(move.partition, move)
                    moves[move.partition] = first._replace(after=move.after)

    carry_out(lambda: moves_off(placed, surroundings, leaving))
    carry_out(lambda: moves_between_racks(placed, surroundings))
    if is_uneven([len(placed.held.get(each, ())) for each in surroundings.racks]):
        carry_out(lambda: moves_to_lighter_brokers(placed, surroundings))
    if is_uneven([placed.led[each] for each in surroundings.racks]):
        carry_out(lambda: changes_of_preferred_leaders(placed, surroundings))
    return [move for move in moves.values() if move.before != move.after]
