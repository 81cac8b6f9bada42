"""A benchmark counts nothing before both sides stand still: a JVM that warms up would flatter us."""

from collections.abc import Callable, Sequence

from benchmarks.warm_up import MAX_WARM_UP_ROUNDS, warm_up


def side(rates: Sequence[float]) -> Callable[[], float]:
    """Return a side that has these rates, round by round, and then its last one for ever."""
    coming = iter(rates)
    return lambda: next(coming, rates[-1])


def test_warm_up_rate_that_rises_goes_on_until_it_stands_still() -> None:
    """Both sides run in turn until the slower to warm is warm, and each is told how long it took."""
    sides = {"ours": side([100, 104]), "theirs": side([91, 120, 150, 198, 201])}
    assert warm_up(sides, rate_of=float) == {"ours": 2, "theirs": 5}


def test_warm_up_rate_that_never_stands_still_ends_and_says_so() -> None:
    """A machine that is too busy must not hold a benchmark for ever, nor pass for warm."""
    restless = [100.0, 200.0] * MAX_WARM_UP_ROUNDS
    assert warm_up({"ours": side([100]), "theirs": side(restless)}, rate_of=float) == {
        "ours": 2,
        "theirs": None,
    }


def test_warm_up_side_that_moves_again_is_waited_for() -> None:
    """What stood still once, and moved while the other side warmed up, is not warm, nor was it then."""
    ours, theirs = [100.0, 100, 150, 150], [50.0, 100, 101, 102]
    sides = {"ours": side(ours), "theirs": side(theirs)}
    seen: dict[str, list[float]] = {"ours": [], "theirs": []}

    def recorded(name: str) -> Callable[[], float]:
        def run() -> float:
            seen[name].append(sides[name]())
            return seen[name][-1]

        return run

    assert warm_up({name: recorded(name) for name in sides}, rate_of=float) == {"ours": 4, "theirs": 3}
    assert seen == {"ours": ours, "theirs": theirs}
