"""The microscope's functions and arithmetic: a wrong one sends an optimisation to the wrong place."""

import time

import pytest

from benchmarks.microscope import load, phases
from benchmarks.microscope.stopwatch import LOOP, Measured, PhaseTime, Stopwatch, place_of, without_wrappers
from sparklog.protocol.records.batch import check_crc, read_header


@pytest.mark.parametrize("measured", [*phases.CAPTURED, *phases.MEASURED], ids=lambda one: one.target)
def test_measured_function_of_this_tree_exists(measured: Measured) -> None:
    """A renamed function would silently count for its caller's phase."""
    targets = [target for target in (measured.target, measured.former) if target is not None]
    assert any(map(place_of, targets))


def spin(milliseconds: int) -> None:
    ends_ns = time.thread_time_ns() + milliseconds * 1_000_000
    while time.thread_time_ns() < ends_ns:
        pass


class Work:
    @staticmethod
    def outer() -> None:
        spin(4)
        Work.inner()

    @staticmethod
    def inner() -> None:
        spin(8)


def test_stopwatch_function_within_another_counts_for_its_own_phase() -> None:
    """Times are exclusive: otherwise the outermost phase would be everything."""
    stopwatch = Stopwatch()
    stopwatch.begin(
        (
            Measured(f"{__name__}:Work.outer", "outer"),
            Measured(f"{__name__}:Work.inner", "inner"),
            Measured(f"{__name__}:Work.absent", "absent"),
        )
    )
    Work.outer()
    found = {phase.name: phase for phase in stopwatch.end()}
    assert 4 <= found[f"{LOOP}: outer"].spent_ns / 1e6 < 6
    assert 8 <= found[f"{LOOP}: inner"].spent_ns / 1e6 < 10
    assert found[f"{LOOP}: outer"].calls == found[f"{LOOP}: inner"].calls == 1
    assert stopwatch.missing == [f"{__name__}:Work.absent"]
    assert Work.outer.__name__ == "outer"


def test_stopwatch_total_below_what_phases_took_is_shared_by_wrappers() -> None:
    """The cost of wrappers goes to the phases with many calls, and no more than there is."""
    measured = [PhaseTime("few", 100, 10, 1), PhaseTime("many", 100, 90, 9)]
    assert without_wrappers(measured, 150) == {"few": 95.0, "many": 55.0}
    assert without_wrappers(measured, 300) == {"few": 100.0, "many": 100.0}


@pytest.mark.parametrize("case", load.CASES.values(), ids=load.CASES.keys())
def test_batch_of_a_case_is_as_large_as_producers_make_them(case: load.Case) -> None:
    """A batch of another size would be another measurement than batch.size=65536."""
    batch, count = load.make_batch(case, seed=1)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.record_count == count
    if case.records is None:
        assert 0.9 * load.BATCH_BYTES < len(batch) <= load.BATCH_BYTES
