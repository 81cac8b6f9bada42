"""Seeds of the tier run clean and alike; see docs/simulation.md."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.tiering.found import SEEDS
from tests.simulation.tiering.world import run_seed

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.timeout(300)
def test_tier_in_many_seeds_keeps_every_invariant() -> None:
    """Whatever order faults come in, what is in the store is served again, and nothing else is deleted."""
    outcomes = [run_seed(seed) for seed in SEEDS]
    assert [outcome.report() for outcome in outcomes if outcome.violation is not None] == []
    # It is not well because nothing happened.
    assert sum(outcome.elections for outcome in outcomes) > 5 * len(SEEDS)
    assert sum(outcome.faults for outcome in outcomes) > 10 * len(SEEDS)
    assert sum(outcome.swaps for outcome in outcomes) > 30 * len(SEEDS)
    assert sum(outcome.applications for outcome in outcomes) > 2 * len(SEEDS)
    assert sum(outcome.served_at_once for outcome in outcomes) > 2 * len(SEEDS)
    assert sum(outcome.losses for outcome in outcomes) > len(SEEDS)


def test_tier_in_one_seed_is_the_same_in_another_process() -> None:
    """A failure that cannot be replayed cannot be understood; string hashes differ between processes."""
    outcome = run_seed(3)
    command = [sys.executable, "-m", "tests.simulation.tiering", "--seed", "3"]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(REPOSITORY)}
    shown = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert f"trace {outcome.trace_hash}, {outcome.event_count:,} events" in shown
    assert run_seed(4).trace_hash != outcome.trace_hash
