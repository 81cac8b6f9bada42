"""Seeds run clean and alike; see docs/simulation.md."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.cluster import run_seed
from tests.simulation.found import clean_seeds
from tests.simulation.observer import Outcome

OF_EACH_KIND = (0, 3, 7, 8, 16, 20, 24, 27, 56, 59, 91, 248, 331)
"""Seeds that have among them all that only some seeds have: moves, compaction, coordinators, and so on."""
ONCE_FAILED = (103376, 103824)
"""Seeds that found a defect which none of `clean_seeds` finds."""
ORDERED_BY_HASH = 50584
"""A seed in which the order of one partition's consumer groups differed between processes."""
REPOSITORY = Path(__file__).parents[2]


def clean_outcomes(seeds: Sequence[int]) -> list[Outcome]:
    """Return what has come of the seeds, which are not clean because nothing happened."""
    outcomes = [run_seed(seed) for seed in seeds]
    assert [outcome.report() for outcome in outcomes if outcome.violation is not None] == []
    assert sum(outcome.elections for outcome in outcomes) > len(seeds)
    assert sum(outcome.promised for outcome in outcomes) > 20 * len(seeds)
    assert sum(outcome.commits for outcome in outcomes) > len(seeds)
    return outcomes


def test_simulation_of_a_seed_of_each_kind_keeps_every_invariant() -> None:
    """Whatever order faults come in, nothing that was promised is lost, and the cluster recovers."""
    outcomes = clean_outcomes(OF_EACH_KIND)
    for happened in ("faults", "transactions", "assignments", "decisions", "cleaned"):
        assert any(getattr(outcome, happened) for outcome in outcomes), happened


@pytest.mark.long
@pytest.mark.timeout(300)  # a minute of computing, beside whatever else the machine does
def test_simulation_of_many_seeds_keeps_every_invariant() -> None:
    """The planted bugs are found in these seeds, and nothing else is."""
    seeds = clean_seeds()
    outcomes = clean_outcomes(seeds)
    assert sum(outcome.faults for outcome in outcomes) > 20 * len(seeds)
    assert sum(outcome.transactions for outcome in outcomes) > 10
    assert sum(outcome.assignments for outcome in outcomes) > 10
    assert sum(outcome.decisions for outcome in outcomes) > 10
    # Little is demanded of transactions once something that was committed may be lost.
    whole = [outcome for outcome in outcomes if outcome.transactions and not outcome.has_lost]
    assert len(whole) >= 6
    assert sum(outcome.cleaned for outcome in outcomes) > 5 * len(seeds)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_simulation_of_a_seed_that_once_failed_is_clean(seed: int) -> None:
    """A query stood still: its tasks took a broker whose address they did not know for the coordinator."""
    assert run_seed(seed).violation is None


def test_simulation_of_one_seed_is_the_same_in_another_process() -> None:
    """A failure that cannot be replayed cannot be understood; string hashes differ between processes."""
    outcome = run_seed(ORDERED_BY_HASH)
    assert f"trace {outcome.trace_hash}, {outcome.event_count:,} events" in _replayed(ORDERED_BY_HASH)
    assert run_seed(7).trace_hash != outcome.trace_hash


def _replayed(seed: int) -> str:
    """Return what is said of a seed by a process that has not this one's hashes, which are random."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    ).stdout
