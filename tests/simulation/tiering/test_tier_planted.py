"""Each planted bug of the tier is found; see docs/simulation.md."""

import pytest

from tests.simulation.tiering.found import documented, find, recorded, table
from tests.simulation.tiering.planted import PLANTED

SEEDS_TRIED = 60


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTED)
def test_simulated_tier_with_a_planted_bug_finds_it(name: str) -> None:
    """A change of a machine gives seeds another meaning, so the first ones are tried as well."""
    seed, invariant = recorded()[name]
    found = find(name, (seed, *range(SEEDS_TRIED)), invariant)
    assert found is not None, "look for a seed with python -m tests.simulation.tiering --find-planted"


def test_document_shows_by_which_seed_each_planted_bug_of_the_tier_is_found() -> None:
    """What the document says was found by a command, not by hand."""
    assert documented() == table(recorded())
    assert list(recorded()) == list(PLANTED)
