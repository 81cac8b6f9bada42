"""What is told of an event loop that stood still."""

import logging

import pytest

from benchmarks.longest_stall import LongestStall, longest_stall
from sparklog.node.loop.machine.stalls import Cause, Stall, StallLog


def a_stall(ms: int) -> Stall:
    return Stall(ms, loop_cpu_ms=ms, unscheduled_ms=0, watch_gap_ms=100, doing=None)


@pytest.mark.parametrize(
    ("stall", "cause"),
    [
        (Stall(900, 800, 50, 100, None), Cause.COMPUTED),
        (Stall(900, 50, 800, 100, None), Cause.STARVED),
        (Stall(900, 5, 5, 100, None), Cause.WAITED),
        (Stall(900, 5, 5, 880, None), Cause.NOT_RUN),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Cause) else "",
)
def test_stall_by_what_the_loop_did_most_of_the_time_has_its_cause(stall: Stall, cause: Cause) -> None:
    """A frozen process or a busy machine must not be blamed on the handler that happened to be at it."""
    assert stall.cause is cause


def test_stall_as_text_names_its_cause_and_what_ran() -> None:
    """An operator has to find the handler in it."""
    assert str(Stall(412, 400, 2, 110, "Handler.handle (handler.py:7)")) == (
        "412 ms (400 ms CPU, 2 ms without a processor): computed in Handler.handle (handler.py:7)"
    )


def test_long_stalls_in_a_row_are_warned_of_at_intervals() -> None:
    """A loop in trouble must not be kept busy with telling so."""
    log = StallLog()
    levels = [log.take(a_stall(300), now_ms=1_000 * second) for second in range(21)]
    assert {second: level for second, level in enumerate(levels) if level is not None} == {
        0: logging.WARNING,
        10: logging.WARNING,
        20: logging.WARNING,
    }


def test_longest_stall_is_told_each_time_it_grows_markedly() -> None:
    """A process that is killed tells nothing at its end; a slow growth needs no line a millisecond."""
    log = StallLog()
    stalls_ms = [49, 50, 60, 63, 40, 100]
    levels = [log.take(a_stall(ms), now_ms=1_000 * second) for second, ms in enumerate(stalls_ms)]
    assert levels == [None, logging.INFO, None, logging.INFO, None, logging.INFO]


def test_longest_stall_in_logs_tells_own_from_foreign() -> None:
    """A run that stops its brokers must not report that as its handlers' doing."""
    stalls = [a_stall(120), Stall(5_000, 3, 2, 4_990, None), Stall(700, 1, 690, 90, None)]
    lines = ["something else", "broker 1: the event loop stood still for nonsense"]
    lines += [f"2026-01-01 INFO broker 1 the event loop stood still for {stall}" for stall in stalls]
    assert longest_stall(lines) == LongestStall(own_ms=120, foreign_ms=5_000)
