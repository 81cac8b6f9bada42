"""Timers of a machine."""

from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now
from sparklog.executor.coordinators.machine.timers import Timers


def due(timers: Timers, now_ms: int, done: list[str]) -> list[str]:
    """Take out all that is due; return what it did."""
    while (action := timers.pop_due(now_ms)) is not None:
        action(Now(now_ms, 0))
    said, done[:] = list(done), []
    return said


def test_timers_do_what_is_due_in_the_order_in_which_it_is() -> None:
    """And each once."""
    timers, done = Timers(), []  # type: Timers, list[str]
    for name, due_ms in (("b", 20), ("a", 10), ("c", 30)):
        timers.schedule(name, due_ms, lambda now, name=name: done.append(name))  # type: ignore[misc]
    assert due(timers, 20, done) == ["a", "b"]
    assert timers.next_due_ms == 30
    assert due(timers, 30, done) == ["c"]
    assert timers.next_due_ms is None


def test_timer_that_is_scheduled_anew_is_due_then_alone_whether_later_or_sooner() -> None:
    """A session is prolonged; a rebalance ends before its time."""
    timers, done = Timers(), []  # type: Timers, list[str]

    def say(name: str) -> None:
        timers.schedule("key", int(name), lambda now: done.append(name))  # type: ignore[func-returns-value]

    say("10")
    say("30")
    assert due(timers, 29, done) == []
    assert due(timers, 30, done) == ["30"]
    say("60")
    say("40")
    say("50")
    assert due(timers, 49, done) == []
    assert due(timers, 100, done) == ["50"]


def test_timer_that_was_cancelled_does_nothing_and_may_be_scheduled_again() -> None:
    """Its place in the heap is of the older one."""
    timers, done = Timers(), []  # type: Timers, list[str]
    timers.schedule("key", 10, lambda now: done.append("old"))  # type: ignore[func-returns-value]
    timers.cancel("key")
    timers.schedule("key", 20, lambda now: done.append("new"))  # type: ignore[func-returns-value]
    assert due(timers, 10, done) == []
    assert due(timers, 20, done) == ["new"]


def test_timers_that_come_and_go_take_no_memory() -> None:
    """A partition that rebalances for years must not grow."""
    timers = Timers()

    def nothing(now: Now) -> CoordinatorResult | None:
        return None

    timers.schedule("stays", 10**9, nothing)
    for number in range(10_000):
        timers.schedule(("join", number), 10**8, nothing)
        timers.cancel(("join", number))
    assert len(timers._heap) < 200
    assert timers.next_due_ms is not None
    assert timers.pop_due(10**9) is nothing
