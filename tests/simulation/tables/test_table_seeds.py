"""Seeds of tables run clean and alike; see docs/simulation.md."""

import pytest

from sparklog.driver.controller.tables.machine.events import PartitionedBy, Retention
from tests.simulation.tables.world import run_seed

SEEDS = range(16)


@pytest.mark.timeout(300)
def test_table_in_many_seeds_keeps_every_invariant() -> None:
    """Whatever order faults come in, each record is in the table once, and no file goes under a reader."""
    worlds = [run_seed(seed) for seed in SEEDS]
    assert [(world.seed, str(world.violation)) for world in worlds if world.violation is not None] == []
    # It is not well because nothing happened.
    assert {world.partitioned_by for world in worlds} == {PartitionedBy.NONE, PartitionedBy.DAY}
    assert {world.retention for world in worlds} == set(Retention)
    assert sum(world.catalogue.commits for world in worlds) > 20 * len(SEEDS)
    assert sum(world.deletions for world in worlds) > 30 * len(SEEDS)
    assert sum(world.faults for world in worlds) > 20 * len(SEEDS)
    assert sum(world.crashes for world in worlds) > len(SEEDS)


def test_table_in_one_seed_is_the_same_each_time() -> None:
    """A failure that cannot be replayed cannot be understood."""
    assert run_seed(3).trace == run_seed(3).trace
    assert run_seed(4).trace != run_seed(3).trace
