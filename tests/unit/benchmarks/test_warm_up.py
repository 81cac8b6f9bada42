"""A benchmark counts nothing before both sides stand still: a JVM that warms up would flatter us."""

from collections.abc import Callable, Sequence

from benchmarks.case import Figure, Round
from benchmarks.warm_up import MAX_WARM_UP_ROUNDS, warm_up


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


def test_warm_up_rate_that_rises_goes_on_until_it_stands_still() -> None:
    """Both sides run in turn until the slower to warm is warm, and each is told how long it took."""
    sides = {"ours": rates(100, 104), "theirs": rates(91, 120, 150, 198, 201)}
    assert warm_up(sides) == {"ours": {"rate": 2}, "theirs": {"rate": 5}}


def test_warm_up_rate_that_never_stands_still_ends_and_says_so() -> None:
    """A machine that is too busy must not hold a benchmark for ever, nor pass for warm."""
    sides = {"ours": rates(100), "theirs": rates(*[100, 200] * MAX_WARM_UP_ROUNDS)}
    assert warm_up(sides) == {"ours": {"rate": 2}, "theirs": {"rate": None}}


def test_warm_up_side_that_moves_again_is_waited_for() -> None:
    """What stood still once, and moved while the other side warmed up, is not warm, nor was it then."""
    seen: dict[str, list[float]] = {"ours": [], "theirs": []}

    def recorded(name: str, run: Round) -> Callable[[], list[Figure]]:
        def recording() -> list[Figure]:
            figures = run()
            seen[name].append(figures[0].value)
            return figures

        return recording

    ours, theirs = [100.0, 100, 150, 150], [50.0, 100, 101, 102]
    sides = {"ours": recorded("ours", rates(*ours)), "theirs": recorded("theirs", rates(*theirs))}
    assert warm_up(sides) == {"ours": {"rate": 4}, "theirs": {"rate": 3}}
    assert seen == {"ours": ours, "theirs": theirs}


def test_warm_up_any_figure_that_moves_is_waited_for() -> None:
    """A bar may be on another figure than the first: a p99, or what the brokers' CPU costs."""
    first, second = [rate(100)], [Figure("CPU", "s/GB", value) for value in (30, 25, 20, 19)]
    assert warm_up({"ours": side(first, second)}) == {"ours": {"rate": 2, "CPU": 4}}


def test_warm_up_figures_that_compare_others_tell_nothing() -> None:
    """A ratio is still while both of its terms rise; a difference of two that are still may be any."""
    still = [Figure("ratio", "x", 1.0)]
    restless = [Figure("added", "ms", value, is_difference=True) for value in (1, 9)] * MAX_WARM_UP_ROUNDS
    rising = [rate(value) for value in (100, 150, 151)]
    assert warm_up({"ours": side(still, restless, rising)}) == {"ours": {"rate": 3}}


def test_warm_up_step_of_reading_is_no_movement() -> None:
    """What is read in whole milliseconds goes to and fro between 2 and 3 for ever."""
    read = [Figure("p50", "ms", value, resolution=1.0) for value in (2, 3)]
    assert warm_up({"ours": side(read)}) == {"ours": {"p50": 2}}


def test_warm_up_one_round_is_never_still() -> None:
    """Nothing was there to compare it with."""
    assert warm_up({"ours": rates(100)}, most_rounds=1) == {"ours": {"rate": None}}
