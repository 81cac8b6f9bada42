"""What is told of an event loop that stood still."""

import logging

import pytest

from sparklog.wire.machine.stalls import Cause, LongestStall, Stall, StallLog, longest_stall


def a_stall(ms: int, *, loop_cpu_ms: int | None = None, doing: str | None = None) -> Stall:
    cpu_ms = ms if loop_cpu_ms is None else loop_cpu_ms
    return Stall(ms, cpu_ms, 0, cpu_ms, 100, 0, doing)


@pytest.mark.parametrize(
    ("stall", "cause"),
    [
        (Stall(900, 800, 50, 850, 100, 0, None), Cause.COMPUTED),
        (Stall(900, 50, 800, 60, 100, 0, None), Cause.STARVED),
        (Stall(900, 5, 5, 10, 100, 0, None), Cause.WAITED),
        (Stall(900, 5, 5, 890, 880, 0, None), Cause.INTERPRETER),
        (Stall(900, 5, 5, 10, 880, 0, None), Cause.STOPPED),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Cause) else "",
)
def test_stall_by_what_the_loop_did_most_of_the_time_has_its_cause(stall: Stall, cause: Cause) -> None:
    """A frozen process or a busy machine must not be blamed on the handler that happened to be at it."""
    assert stall.cause is cause


def test_long_stall_is_warned_of_with_who_caused_it() -> None:
    """Who reads the log has to find the handler in it."""
    log = StallLog()
    stall = Stall(412, 400, 2, 405, 110, 120, "Handler.handle (handler.py:7)")
    assert log.take(stall, now_ms=0) == [
        (
            logging.WARNING,
            "the event loop stood still for 412 ms (400 ms CPU, 2 ms without a processor, 120 ms of garbage "
            "collection): computed in Handler.handle (handler.py:7)",
        ),
        (
            logging.INFO,
            "longest stall of the event loop so far: 412 ms (400 ms CPU, 2 ms without a processor, 120 ms of "
            "garbage collection): computed in Handler.handle (handler.py:7)",
        ),
    ]


def test_long_stalls_in_a_row_are_warned_of_at_intervals_with_their_number() -> None:
    """A loop in trouble must not be kept busy with telling so."""
    log = StallLog()
    warnings = [
        line
        for second in range(21)
        for level, line in log.take(a_stall(300), now_ms=1_000 * second)
        if level == logging.WARNING
    ]
    assert [line.partition("computed")[2] for line in warnings] == [
        "",
        " (9 more since the last such line)",
        " (9 more since the last such line)",
    ]


def test_longest_stall_is_told_each_time_it_grows_markedly() -> None:
    """A process that is killed tells nothing at its end; a slow growth needs no line a millisecond."""
    log = StallLog()
    told = [
        stall_ms
        for second, stall_ms in enumerate([49, 50, 60, 63, 40, 100])
        if log.take(a_stall(stall_ms), now_ms=1_000 * second)
    ]
    assert told == [50, 63, 100]


def test_last_lines_of_a_quiet_loop_have_the_longest_stall_all_the_same() -> None:
    """A figure that is missing would look like one that was not taken."""
    log = StallLog()
    for stall_ms in (3, 12, 7):
        log.take(a_stall(stall_ms), now_ms=0)
    assert [longest_stall([line]) for line in log.last_lines()] == [LongestStall(own_ms=12, foreign_ms=0)]


def test_longest_stall_in_logs_tells_own_from_foreign() -> None:
    """A run that stops its brokers must not report that as its handlers' doing."""
    log = StallLog()
    lines = ["something else", "broker 1: longest stall of the event loop so far: nonsense"]
    for stall in (a_stall(120), Stall(5_000, 3, 2, 5, 4_990, 0, None), Stall(700, 1, 690, 2, 90, 0, None)):
        lines += [f"2026-01-01 INFO broker 1 {line}" for _, line in log.take(stall, now_ms=0)]
    assert longest_stall(lines) == LongestStall(own_ms=120, foreign_ms=5_000)
