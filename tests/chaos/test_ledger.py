"""The ledger tells a kept promise from every way to break one; what finds no bugs proves nothing."""

from array import array
from collections.abc import Iterable, Sequence

import pytest

from benchmarks.probe import value_of
from tests.chaos.ledger import Ledger, Verdict


def verdict(
    readings: Iterable[tuple[int, bytes]], acknowledged: Sequence[tuple[int, int]], produced: int | None
) -> Verdict:
    """Judge one partition: (offset, value) as read, (number, offset) as acknowledged."""
    ledger = Ledger(1)
    for offset, value in readings:
        ledger.read(0, offset, value)
    numbers = array("q", [number for number, _ in acknowledged])
    offsets = array("q", [offset for _, offset in acknowledged])
    return ledger.verdict([numbers], [offsets], None if produced is None else [produced])


def at(*numbers: int) -> list[tuple[int, bytes]]:
    """Return these records of partition 0 as read at offsets from 0 on."""
    return [(offset, value_of(0, number)) for offset, number in enumerate(numbers)]


def test_ledger_of_a_kept_promise_is_clean_whoever_read_and_however_often() -> None:
    """Two readers see the same; a record that was never acknowledged may be there, or be missing."""
    kept = verdict([*at(0, 1, 3), *at(0, 1, 3)], [(0, 0), (1, -1), (3, 2)], produced=5)
    assert kept == Verdict(3, lost=0, duplicated=0, disordered=0, changed=0, invented=0, examples=())
    assert kept.is_clean


@pytest.mark.parametrize(
    ("wrong", "readings", "acknowledged"),
    [
        ("lost", at(0, 2), [(0, 0), (1, -1), (2, 1)]),
        ("duplicated", at(0, 1, 1), [(0, 0), (1, 1)]),
        ("disordered", at(1, 0), [(0, 1), (1, 0)]),
        ("changed", [*at(0, 1), (1, value_of(0, 2)), (2, value_of(0, 1))], [(0, 0)]),
        ("changed", at(0, 1), [(0, 1)]),
        ("invented", at(0, 3), [(0, 0)]),
        ("invented", [(0, b"something else")], []),
        ("invented", [(0, value_of(1, 0))], []),
        ("invented", [(0, b"0 -1")], []),
    ],
)
def test_ledger_of_a_broken_promise_says_how(
    wrong: str, readings: list[tuple[int, bytes]], acknowledged: list[tuple[int, int]]
) -> None:
    """Each kind of damage has another cause, so a run must name it."""
    found = verdict(readings, acknowledged, produced=3)
    assert getattr(found, wrong) == 1
    assert not found.is_clean
    assert found.examples


def test_ledger_without_the_producers_count_finds_what_is_lost_or_twice_and_invents_nothing() -> None:
    """A producer that was killed did not say what it wrote; its records are not invented for that."""
    readings = at(0, 1, 1, 4)
    found = verdict(readings, [(0, 0), (2, 4)], produced=None)
    assert (found.lost, found.duplicated, found.invented) == (1, 1, 0)


def test_ledger_forgives_what_is_gone_beyond_a_cut_and_nothing_below_it() -> None:
    """A cluster whose disks are gone goes on where its copies end, and hands these offsets out again."""
    ledger = Ledger(1)
    for offset in range(4):
        ledger.read(0, offset, value_of(0, offset))
    assert ledger.cut(0, 2, [0, 1, 2, -1]) == {2, 3}
    ledger.read(0, 1, value_of(0, 1))
    ledger.read(0, 2, value_of(0, 4))
    verdict = ledger.verdict([array("q", range(5))], [array("q", [0, 1, 2, -1, 2])], [5])
    assert verdict.is_clean, verdict
    assert ledger.cut(0, 1, [0, 1, 2, -1, 2]) == {1, 4}
    ledger.read(0, 0, value_of(0, 5))
    assert ledger.verdict([array("q", range(5))], [array("q", [0, 1, 2, -1, 2])], [6]).lost == 1
