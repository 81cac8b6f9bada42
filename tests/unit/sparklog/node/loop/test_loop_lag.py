"""The watch over an event loop, on a real loop and a real thread."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from benchmarks.longest_stall import longest_stall_ms
from sparklog.node.loop import loop_lag
from sparklog.node.loop.loop_lag import run_watched
from sparklog.node.loop.turn_loop import TurnSelector, at_turn_end

DEADLINE_S = 30.0
STALL_S = 0.3
FRAME_SIZES = 12
LOOKED_AT_S = 2.0


class Slow:
    """Somebody who keeps the loop."""

    async def handle(self) -> None:
        """Be slow as a task."""
        self.look_at_everything()

    def look_at_everything(self) -> None:
        """Wait as one waits for a disk."""
        time.sleep(STALL_S)


async def stall_until_told(caplog: pytest.LogCaptureFixture, told: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s and told not in caplog.text:
        await asyncio.create_task(Slow().handle())


def test_loop_that_stands_still_is_told_of_with_the_calls_that_kept_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without the name an operator knows that something is slow, and not what."""
    caplog.set_level("INFO", "sparklog.node.loop.loop_lag")
    run_watched(stall_until_told(caplog, "Slow.look_at_everything"), "broker 7")
    assert "broker 7: the event loop stood still for " in caplog.text
    assert "Slow.handle > Slow.look_at_everything (node/loop/test_loop_lag.py:" in caplog.text
    assert longest_stall_ms(caplog.messages) >= 1_000 * STALL_S


def test_loop_kept_at_the_end_of_a_turn_is_told_of_with_the_calls_that_kept_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Answers are made there, outside of any handle of the loop."""

    async def main() -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s and "look_at_everything" not in caplog.text:
            at_turn_end(asyncio.get_running_loop())(Slow().look_at_everything)
            await asyncio.sleep(0)

    caplog.set_level("INFO", "sparklog.node.loop.loop_lag")
    run_watched(main(), "broker 7")
    assert "Slow.look_at_everything (node/loop/test_loop_lag.py:" in caplog.text


def test_idle_loop_that_stands_still_for_long_is_told_of_with_the_calls_that_kept_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread beside it looks less often, and sees what a client begins after a quiet night."""

    async def main() -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s and "look_at_everything" not in caplog.text:
            await asyncio.sleep(2 * loop_lag.IDLE_BEAT_S)
            for _ in range(3):
                Slow().look_at_everything()

    monkeypatch.setattr(loop_lag, "IDLE_LOOKS", 1)
    caplog.set_level("INFO", "sparklog.node.loop.loop_lag")
    run_watched(main(), "broker 7")
    assert "Slow.look_at_everything (node/loop/test_loop_lag.py:" in caplog.text


def test_loop_that_fails_raises_what_its_coroutine_raised() -> None:
    """The watch must not hide why a broker ended."""
    failing = partial(asyncio.wait_for, asyncio.Event().wait(), 0)
    with pytest.raises(TimeoutError):
        run_watched(failing(), "broker 7")


def be_looked_at_while_frames_come_and_go() -> None:
    """Keep a loop with calls whose frames are of many sizes, and let it go on whenever garbage is collected.

    On a starved machine a thread that collects garbage loses the interpreter in the middle of it.
    """
    loop_thread = threading.current_thread()

    def let_the_loop_go_on(phase: str, info: dict[str, int]) -> None:
        if threading.current_thread() is not loop_thread:
            time.sleep(0)

    calls: list[Callable[[int, int], None]] = []
    for size in range(FRAME_SIZES):
        names = "".join(f"v{number} = [depth]; " for number in range(size))
        free = "".join(f"v{number}, " for number in range(size))
        code = (
            f"def call(depth, chance):\n {names}\n own = lambda: ({free} depth)\n own()\n"
            f" if depth: calls[chance % {FRAME_SIZES}](depth - 1, chance // {FRAME_SIZES} + depth)"
        )
        scope: dict[str, Any] = {"calls": calls}
        exec(code, scope)
        calls.append(scope["call"])

    async def main() -> None:
        deadline_s = time.monotonic() + LOOKED_AT_S
        turn = 0
        while time.monotonic() < deadline_s:
            turn += 1
            if turn % 1_000 == 0:
                await asyncio.sleep(0)
            calls[turn % FRAME_SIZES](9, turn * 2_654_435_761 % 2**40)

    loop_lag.BEAT_S = 0.0005  # type: ignore[misc] - hours of a broker in seconds
    sys.setswitchinterval(1e-5)
    gc.callbacks.append(let_the_loop_go_on)
    gc.set_threshold(3, 1_000, 1_000)
    run_watched(main(), "broker 7")
    print("goes on")


def test_loop_that_is_looked_at_while_its_frames_come_and_go_goes_on() -> None:
    """Brokers died of SIGSEGV because they were looked at when they were slow: frames are made late."""
    here = f"{__name__}.{be_looked_at_while_frames_come_and_go.__name__}"
    command = [sys.executable, "-X", "faulthandler", "-c", f"import {__name__}; {here}()"]
    looked_at = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (looked_at.returncode, looked_at.stdout) == (0, "goes on\n"), looked_at.stderr
    # The watching thread itself ended of a frame that was none.
    assert "Traceback" not in looked_at.stderr


def test_signal_that_asks_the_loop_is_let_go_with_the_watch() -> None:
    """Afterwards the process is its owner's again."""
    before = signal.getsignal(signal.SIGURG)
    run_watched(asyncio.sleep(0), "broker 7")
    assert signal.getsignal(signal.SIGURG) is before


def test_loop_of_another_thread_is_measured_and_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    """Signal handlers run on the main thread alone, whose frames are not this loop's."""
    caplog.set_level("INFO", "sparklog.node.loop.loop_lag")
    stalling = stall_until_told(caplog, "the event loop stood still for ")
    thread = threading.Thread(target=run_watched, args=(stalling, "controller"))
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert "controller: the event loop stood still for " in caplog.text
    assert caplog.messages[-1].endswith(" in calls that are not known")


def test_long_stalls_in_a_row_are_logged_at_intervals_or_when_they_are_the_longest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A loop in trouble is not kept busy with its log; a killed process logs nothing at its end."""
    selector = TurnSelector()
    watch = loop_lag.LoopWatch(selector, "broker 7")
    for ended_s, lasted_s in ((20, 0.2), (21, 0.3), (22, 0.29), (23, 0.4), (32, 0.3), (33, 0.3)):
        selector._note(ended_s - lasted_s, ended_s)
        watch._report()
    told = [message.split(" for ")[1].split(" in ")[0] for message in caplog.messages]
    assert told == ["300 ms", "400 ms", "300 ms"]
    selector.close()
