"""Nothing counts before both sides stand still, and no case takes longer than its bound."""

import asyncio
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from benchmarks.budgets import Budget
from benchmarks.case import Figure, Round
from benchmarks.rounds import Rounds, Sides, run_rounds

ENOUGH_S = 60
"""A bound that no test reaches."""


def rate(value: float) -> Figure:
    """Return a figure that tells whether a side is warm."""
    return Figure("rate", "records/s", value)


def side(*figures: Sequence[Figure]) -> Round:
    """Return a side that has these of each figure, round by round, and then the last of them for ever."""
    coming = [iter(of_one) for of_one in figures]
    return lambda: [next(values, of_one[-1]) for values, of_one in zip(coming, figures, strict=True)]


def rates(*values: float) -> Round:
    """Return a side that has these rates."""
    return side([rate(value) for value in values])


def ran(budget: Budget, **sides: Round) -> Rounds:
    """Return what a case with these sides gives."""

    @contextmanager
    def opened() -> Iterator[Sides]:
        yield sides

    return run_rounds(opened, budget)


def counted(rounds: Rounds, side: str, place: int = 0) -> list[float]:
    """Return the values of a side's figure in the rounds that count."""
    return [of[side][place].value for of in rounds.counted]


def test_rounds_count_from_where_the_slower_side_to_warm_is_warm() -> None:
    """A JVM that still warms up would flatter the other side."""
    theirs = rates(91, 120, 150, 198, 201, 199, 204, 205)
    rounds = ran(Budget(ENOUGH_S, counted=3), ours=rates(100), theirs=theirs)
    assert counted(rounds, "theirs") == [198, 201, 199]
    assert rounds.remark == "3 of 6"


def test_rounds_three_within_five_percent_are_warm_and_two_are_not() -> None:
    """A pair is soon found by chance."""
    rounds = ran(Budget(ENOUGH_S, counted=3), ours=rates(100, 101, 110, 111, 115, 100, 100, 100))
    assert counted(rounds, "ours") == [110, 111, 115]


def test_rounds_sides_take_turns_to_be_first() -> None:
    """The second one pays for what the first left to be written."""
    order: list[str] = []

    def recorded(name: str) -> Round:
        return lambda: order.append(name) or [rate(1)]  # type: ignore[func-returns-value]

    ran(Budget(ENOUGH_S, counted=3), ours=recorded("ours"), theirs=recorded("theirs"))
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]


def test_rounds_figures_that_compare_others_do_not_tell_warmth() -> None:
    """A ratio is still while both of its terms rise; a difference of two that are still may be any."""
    ratio = [Figure("ratio", "x", 1.0)]
    restless = [Figure("added", "ms", value, is_difference=True) for value in (1, 9) * 5]
    rising = [rate(value) for value in (100, 150, 200)]
    assert (
        counted(ran(Budget(ENOUGH_S, counted=3), ours=side(ratio, restless, rising)), "ours", 2) == [200] * 3
    )


def test_rounds_step_of_reading_is_no_movement() -> None:
    """A figure in whole milliseconds alternates between 2 and 3 for ever."""
    read = [Figure("p50", "ms", value, resolution=1.0) for value in (2, 3, 2)]
    assert ran(Budget(ENOUGH_S, counted=3), ours=side(read)).remark == "3 of 3"


def test_rounds_of_a_case_that_does_not_warm_all_count() -> None:
    """Each killed broker takes its own time; none of them is a warming."""
    budget = Budget(ENOUGH_S, counted=4, warms=False)
    assert counted(ran(budget, ours=rates(1, 9, 4, 2, 7)), "ours") == [1, 9, 4, 2]


def test_rounds_that_never_stand_still_keep_the_last_ones_at_the_bound() -> None:
    """A restless machine must not hold the hour, nor pass for a still one."""
    values = itertools.cycle((100, 200, 150))
    rounds = ran(Budget(0.2, counted=5), ours=lambda: [rate(next(values))])
    last = rounds.done[-1]["ours"][0].value
    assert counted(rounds, "ours")[-1] == last
    assert len(rounds.counted) == 5
    assert rounds.remark == f"5 of {len(rounds.done)}, not still"


@pytest.mark.parametrize("hangs_in_a_loop", [False, True])
def test_round_that_hangs_is_cut_at_the_bound_and_earlier_ones_stay(hangs_in_a_loop: bool) -> None:
    """One client that waits for ever would cost every row after it; event loops swallow most exceptions."""
    number = iter(range(10))

    def run() -> list[Figure]:
        if next(number) == 2:
            if hangs_in_a_loop:
                asyncio.run(asyncio.sleep(ENOUGH_S))
            threading.Event().wait(ENOUGH_S)
        return [rate(100)]

    rounds = ran(Budget(0.2, counted=4), ours=run)
    assert counted(rounds, "ours") == [100]
    assert rounds.remark == "1 of 2, not still, cut after 0.2 s"


def test_rounds_whose_preparation_takes_the_whole_bound_have_no_figures() -> None:
    """The row of the case has its remark."""

    @contextmanager
    def opened() -> Iterator[Sides]:
        threading.Event().wait(ENOUGH_S)
        yield {}

    rounds = run_rounds(opened, Budget(0.1))
    assert (list(rounds.counted), rounds.remark) == ([], "cut after 0.1 s")


def test_round_that_fails_ends_its_case_alone() -> None:
    """The hour goes on, and the row names the failure."""
    values = iter([100.0, 101.0])
    rounds = ran(Budget(ENOUGH_S), ours=lambda: [rate(1 / (next(values) - 101))])
    assert rounds.remark == "1 of 1, not still, failed: ZeroDivisionError: float division by zero"


def test_round_that_fails_with_a_long_text_leaves_its_beginning_in_the_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A client's whole output is no row; standard error has it."""

    def run() -> list[Figure]:
        raise RuntimeError("the client said:\n" + 4_000 * "x")

    assert ran(Budget(ENOUGH_S), ours=run).remark == f"failed: RuntimeError: the client said: {143 * 'x'}"
    assert 4_000 * "x" in capsys.readouterr().err


def test_round_that_is_interrupted_from_the_keyboard_ends_everything() -> None:
    """Ctrl-C is no bound."""

    def run() -> list[Figure]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(Budget(ENOUGH_S), ours=run)
