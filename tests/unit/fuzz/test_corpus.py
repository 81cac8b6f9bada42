"""The fuzzer's corpus, played without the fuzzer: seeds, and whatever it has found before."""

import asyncio
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.fuzz.corpus import read_corpus
from tests.fuzz.finding import Finding
from tests.fuzz.seeds import REGRESSION
from tests.fuzz.targets import TARGETS, load
from tests.fuzz.watch import play

MOST = 60
"""So many seeds of a target are played, evenly chosen, and all that it has found."""


@pytest.fixture(autouse=True)
def no_loop_left_running() -> Iterator[None]:
    """A target has a loop run for as long as the fuzzer lives; the tests after these have their own."""
    yield
    asyncio._set_running_loop(None)


def _nothing(entity: Any) -> Generator[None, None, list[bytes]]:
    yield
    return []


@pytest.mark.parametrize("name", TARGETS)
def test_input_of_the_corpus_is_stood_as_it_was_when_it_was_added(name: str) -> None:
    """What was found once is not to come back, and the targets must run, though few start the fuzzer."""
    target, inputs = load(name), read_corpus(name)
    assert inputs
    found = [each for each in inputs if each.startswith(REGRESSION)]
    seeds = [each for each in inputs if not each.startswith(REGRESSION)]
    for each in (*found, *seeds[:: 1 + len(seeds) // MOST]):
        try:
            play(target, inputs[each])
        except Exception as error:
            error.add_note(f"by {each} of {name}")
            raise


def test_target_says_no_when_a_parser_lets_an_error_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fuzzer that sees nothing would look the same as one that finds nothing."""
    from tests.fuzz.targets import requests

    monkeypatch.setattr(requests, "encode_entity_in_steps", _nothing)
    with pytest.raises(Finding):
        play(requests.target(), read_corpus("requests")["METADATA-12"])
