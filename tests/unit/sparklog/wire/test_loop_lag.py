"""The watch over an event loop, on a real loop and a real thread."""

import _thread
import asyncio
import gc
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from sparklog.wire.loop_lag import run_watched
from sparklog.wire.machine.stalls import longest_stall

DEADLINE_S = 30.0
STALL_S = 0.3
STARTED_THREADS = 300


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
    caplog.set_level("INFO", "sparklog.wire.loop_lag")
    run_watched(stall_until_told(caplog, "Slow.look_at_everything"), "broker 7")
    assert "broker 7: the event loop stood still for " in caplog.text
    assert "Slow.handle > Slow.look_at_everything (sparklog/wire/test_loop_lag.py:" in caplog.text
    assert longest_stall(caplog.messages).own_ms >= 1_000 * STALL_S


def test_loop_kept_by_a_function_without_a_frame_is_told_of_with_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Calls into C have no line to be found at, but a name."""

    async def main() -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s and " in sleep" not in caplog.text:
            asyncio.get_running_loop().call_soon(time.sleep, STALL_S)
            await asyncio.sleep(0)

    caplog.set_level("INFO", "sparklog.wire.loop_lag")
    run_watched(main(), "controller")
    assert " in sleep" in caplog.text


def test_loop_that_ends_tells_its_longest_stall(caplog: pytest.LogCaptureFixture) -> None:
    """The figure is there for every process that ends in order, however quiet it was."""
    caplog.set_level("INFO", "sparklog.wire.loop_lag")
    assert run_watched(asyncio.sleep(0, result="done"), "broker 7") == "done"
    assert caplog.messages[-1].startswith("broker 7: longest stall of the event loop so far: ")


def test_loop_that_fails_raises_what_its_coroutine_raised() -> None:
    """The watch must not hide why a broker ended."""
    failing = partial(asyncio.wait_for, asyncio.Event().wait(), 0)
    with pytest.raises(TimeoutError):
        run_watched(failing(), "broker 7")


def start_threads_until_looked_at_often() -> None:
    """Keep a loop with starting threads, where whoever looks at it collects garbage again and again."""

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        if threading.current_thread().name == "sparklog loop watch":
            time.sleep(0.001)

    def start_threads() -> None:
        for _ in range(STARTED_THREADS):
            _thread.start_new_thread(int, ())
            time.sleep(0.001)

    async def main() -> None:
        gc.callbacks.append(let_others_run)
        gc.set_threshold(1)
        start_threads()

    run_watched(main(), "broker 7")


def test_loop_that_is_looked_at_while_threads_start_goes_on() -> None:
    """A broker stood still for ever, with its connections open, because it was looked at when it was slow."""
    here = f"{__name__}.{start_threads_until_looked_at_often.__name__}"
    code = f"import {__name__}; {here}()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)
