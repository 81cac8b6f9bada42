"""What peers can cause as often as they like, and what of it is in the log."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from sparklog.node.limits.rate_limited_log import INTERVAL_S, RateLimitedLog
from tests.unit.sparklog.node.serving.serving import HEARTBEAT_ONLY, RawClient, run, serving, until

logger = logging.getLogger("test")


class Timers:
    """The timers of an event loop whose time the test decides."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._timers: list[tuple[float, Callable[..., None], tuple[Any, ...], list[bool]]] = []

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> Any:
        cancelled: list[bool] = []
        self._timers.append((self._now_s + delay_s, callback, arguments, cancelled))

        class Handle:
            def cancel(self) -> None:
                cancelled.append(True)

        return Handle()

    def __len__(self) -> int:
        return len(self._timers)

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
        due = [timer for timer in self._timers if timer[0] <= self._now_s]
        self._timers = [timer for timer in self._timers if timer[0] > self._now_s]
        for _, callback, arguments, cancelled in due:
            if not cancelled:
                callback(*arguments)


def limited(timers: Timers) -> RateLimitedLog:
    return RateLimitedLog(logger, cast(asyncio.AbstractEventLoop, timers))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    written = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return written


def test_line_of_a_kind_is_written_once_a_minute_with_the_count_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that connects and fails in a circle had written 71,000 lines in three minutes."""
    timers = Timers()
    log = limited(timers)
    for number in range(1000):
        log.write(logging.WARNING, "10.0.0.1", "frame size", f"bad frame {number}")
    log.write(logging.WARNING, "10.0.0.2", "frame size", "bad frame of another")
    log.write(logging.WARNING, "10.0.0.1", "unsupported_version", "bad version")
    assert lines(caplog) == ["bad frame 0", "bad frame of another", "bad version"]
    timers.advance(INTERVAL_S)
    assert lines(caplog) == ["bad frame 999 (the last of 999 more from 10.0.0.1 within 60 s: frame size)"]
    log.write(logging.WARNING, "10.0.0.1", "frame size", "bad frame 1000")
    assert lines(caplog) == []
    timers.advance(INTERVAL_S)
    assert lines(caplog) == ["bad frame 1000 (the last of 1 more from 10.0.0.1 within 60 s: frame size)"]
    timers.advance(INTERVAL_S)
    assert lines(caplog) == []
    assert len(timers) == 0, "what is over keeps nothing"
    log.write(logging.WARNING, "10.0.0.1", "frame size", "bad frame 1001")
    assert lines(caplog) == ["bad frame 1001"]


def test_lines_from_ever_more_addresses_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has a network of addresses must not have the broker's memory and log with it."""
    timers = Timers()
    log = limited(timers)
    for number in range(100_000):
        log.write(logging.WARNING, f"fd00::{number:x}", "frame size", f"bad frame {number}")
    assert len(timers) < 300
    assert len(lines(caplog)) == len(timers)
    timers.advance(INTERVAL_S)
    (told,) = lines(caplog)
    assert told.startswith("bad frame 99999 (the last of 99")
    assert "from any address" in told


def test_lines_still_counted_when_the_log_is_closed_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """What happened just before the end is what one looks for."""
    timers = Timers()
    log = limited(timers)
    for number in range(3):
        log.write(logging.ERROR, "10.0.0.1", "lost", f"lost {number}")
    log.close()
    assert lines(caplog) == ["lost 0", "lost 2 (the last of 2 more from 10.0.0.1 within 60 s: lost)"]
    timers.advance(INTERVAL_S)
    assert lines(caplog) == []


def test_listener_that_is_sent_bad_frames_over_many_connections_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each connection is closed; the log has one line, and the count when the listener ends."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            for number in range(50):
                client = await RawClient.connect(listener)
                client.writer.write(bytes([0x7F, 0xFF, 0xFF, number]))
                assert await client.closed_by_server()
            await until(lambda: listener.connection_count == 0)
            assert len(caplog.records) == 1

    with caplog.at_level(logging.INFO, "sparklog.node.serving"):
        run(scenario())
    first, rest = (record.getMessage() for record in caplog.records)
    assert "a frame of 2147483392 bytes" in first
    assert "the last of 49 more from 127.0.0.1" in rest
