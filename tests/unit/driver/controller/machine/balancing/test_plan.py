"""The dry run: what the balancer would do, and nothing for a balanced cluster."""

from uuid import UUID

from sparklog.driver.controller.machine.balancing.moves import Surroundings
from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas
from sparklog.driver.controller.machine.balancing.plan import plan
from sparklog.protocol.types import TopicIdPartition

RACKS = {0: "a", 1: "b", 2: "c"}


def partitions(*replicas: tuple[int, ...]) -> PlacedReplicas:
    return PlacedReplicas(
        {TopicIdPartition(UUID(int=1), number): each for number, each in enumerate(replicas)}
    )


def test_plan_of_a_balanced_cluster_is_empty() -> None:
    """A plan that is never empty is carried out for ever."""
    assert plan(partitions((0, 1), (1, 2), (2, 0)), Surroundings(RACKS), ()) == []


def test_plan_names_each_partition_once_from_its_first_to_its_last_replicas() -> None:
    """A replica that moves twice would be copied twice."""
    placed = partitions(*[(0, 3)] * 6)
    before = dict(placed.replicas)
    moves = plan(placed, Surroundings({**RACKS, 4: "c"}), {3})
    assert len({move.partition for move in moves}) == len(moves) == 6
    assert {move.partition: move.before for move in moves} == before
    assert {move.partition: move.after for move in moves} == placed.replicas
    assert all(set(move.after) <= {0, 1, 2, 4} for move in moves)
    assert all(move.after not in ((2, 4), (4, 2)) for move in moves), "one rack"
    assert max(placed.led.values()) <= 3
