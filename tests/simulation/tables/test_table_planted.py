"""Each planted bug of a table's committer is found; see docs/simulation.md."""

import pytest

from tests.simulation.tables.planted import PLANTED
from tests.simulation.tables.world import run_seed

FOUND_BY = {
    "claim-skipped": "FilesAreThere",
}
"""The invariants that must find the bugs."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTED)
def test_simulated_table_with_a_planted_bug_finds_it(name: str) -> None:
    """A simulation that finds nothing in a broken committer says nothing of a whole one."""
    with PLANTED[name].planted():
        violations = (run_seed(seed).violation for seed in PLANTED[name].seeds)
        found = next((each.invariant for each in violations if each is not None), None)
    assert found == FOUND_BY[name]
