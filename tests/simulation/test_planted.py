"""Each planted bug is found, and each invariant can fail; see docs/simulation.md."""

import pytest

from tests.simulation.found import (
    documented,
    fails_alone,
    find,
    never_first,
    recorded,
    recorded_alone,
    table,
    table_alone,
)
from tests.simulation.planted import PLANTED

SEEDS_TRIED = 200
SLOW = {"RollingRestartIsUnnoticed"}
"""Invariants that fail in a seed of many seconds."""
HINT = "look for a seed with python -m tests.simulation --find-planted"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTED)
def test_simulation_with_a_planted_bug_finds_it(name: str) -> None:
    """An invariant that never fails proves nothing.

    A change of a machine gives seeds another meaning, so the first ones are tried as well.
    """
    seed, invariant = recorded()[name]
    others = [seed for seed in PLANTED[name].seeds if seed < SEEDS_TRIED]
    assert find(name, (seed, *others), invariant) is not None, HINT


@pytest.mark.parametrize(
    "invariant",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
        for name in never_first(recorded())
    ],
)
def test_invariant_that_is_never_the_first_to_fail_fails_alone(invariant: str) -> None:
    """Another one that sees the same sooner may be what has to be mended one day."""
    bug, seed = recorded_alone()[invariant]
    assert fails_alone(invariant, bug, seed), HINT


def test_document_shows_by_which_seed_each_planted_bug_is_found() -> None:
    """What the document says was found by a command, not by hand."""
    assert documented() == (table(recorded()), table_alone(recorded_alone()))
    assert list(recorded()) == list(PLANTED)
    assert list(recorded_alone()) == never_first(recorded())


def test_planted_bug_is_gone_afterwards() -> None:
    """Nothing of it may stay in the machines that other tests use."""
    before = {name: [_held(place) for place in bug.replacements()] for name, bug in PLANTED.items()}
    for bug in PLANTED.values():
        with bug.planted():
            pass
    after = {name: [_held(place) for place in bug.replacements()] for name, bug in PLANTED.items()}
    assert after == before


def _held(place: object) -> object:
    return place.owner.__dict__[place.name]  # type: ignore[attr-defined]
