"""A run that is killed leaves what it has measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.budgets import Budget
from benchmarks.case import BASELINE, OURS, RATIO, Figure
from benchmarks.results import CaseResult, Measurement, Origin, append_result, left_to_measure, read_results
from benchmarks.rounds import Rounds

ORIGIN = Origin("abc1234567", "2 cores of a processor, 4 GiB", "2026-01-02")


def figures(rate: float, resident: float | None = None) -> list[Figure]:
    """Return those of a round; one that only one side has comes last."""
    common = [Figure("rate", "records/s", rate, ">= 1.2")]
    return common if resident is None else [Figure("JVMs", "MiB", resident), *common]


def test_result_has_figures_of_the_rounds_that_count_by_their_names() -> None:
    """One side has executors around its brokers, and the other has none."""
    rounds = Rounds(Budget(60, counted=2, warms=False))
    rounds.done = [
        {OURS: figures(10, 868.00000123), BASELINE: figures(5)},
        {BASELINE: figures(6), OURS: figures(11, 869)},
    ]
    assert CaseResult.of("produce", rounds, ORIGIN) == CaseResult(
        "produce",
        ORIGIN,
        "2 of 2",
        (
            Measurement("JVMs", "MiB", "", (868, 869), ()),
            Measurement("rate", "records/s", ">= 1.2", (10, 11), (5, 6)),
        ),
    )


def test_result_ratio_or_difference_has_no_ratio_of_its_own() -> None:
    """The time that exactly once adds, divided by that on the other side, has no meaning."""
    rounds = Rounds(Budget(60, counted=1, warms=False))
    round_of = [Figure("added", "ms", 4, is_difference=True), Figure("share", RATIO, 0.9), *figures(10)]
    rounds.done = [{OURS: round_of, BASELINE: round_of}]
    measurements = CaseResult.of("sink", rounds, ORIGIN).measurements
    assert [measurement.has_ratio for measurement in measurements] == [False, False, True]


def test_results_newest_line_of_a_case_counts(tmp_path: Path) -> None:
    """A single case can be measured again, and replaces its own rows alone."""
    path = tmp_path / "new" / "results.jsonl"
    assert read_results(path) == {}
    first, other, again = (
        CaseResult(case, ORIGIN, remark, (Measurement("rate", "records/s", "", (value,), ()),))
        for case, remark, value in (("a", "1 of 1", 1.0), ("b", "1 of 1", 2.0), ("a", "1 of 2", 3.0))
    )
    for result in (first, other, again):
        append_result(path, result)
    assert read_results(path) == {"a": again, "b": other}


def test_run_that_goes_on_measures_what_has_no_figures_of_its_commit() -> None:
    """A case that failed is tried again; figures of another commit are not this one's, whatever the day."""
    figure = (Measurement("rate", "records/s", "", (1.0,), ()),)
    results = {
        "done": CaseResult("done", replace(ORIGIN, date="2026-01-01"), "", figure),
        "failed": CaseResult("failed", ORIGIN, "failed: no broker", ()),
        "older": CaseResult("older", replace(ORIGIN, commit="0000000000"), "", figure),
    }
    left = left_to_measure(["new", "done", "older", "failed"], results, ORIGIN)
    assert left == ["new", "older", "failed"]


def test_results_line_that_is_none_is_named(tmp_path: Path) -> None:
    """A kill in the middle of a write leaves half a line."""
    path = tmp_path / "results.jsonl"
    append_result(path, CaseResult("a", ORIGIN, "", ()))
    path.write_text(path.read_text() + '{"case": "b"')
    with pytest.raises(ValueError, match=r"results\.jsonl, line 2 is no result"):
        read_results(path)


def test_origin_here_names_commit_machine_and_day() -> None:
    """Figures are compared only with those of the same machine."""
    here = Origin.here(())
    assert here.commit
    assert "cores of" in here.machine
    assert len(here.date) == 10
