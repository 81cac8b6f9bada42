"""What production's shells without tasks need of a loop, in simulated time: a process's clock and timers."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.simulation.network import Process

EXECUTOR_MS = 2
"""How long a thread takes for what it is given."""


class Timer:
    """Something that happens at its time unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Let it not happen."""
        self._callback = None

    def fire(self) -> None:
        """It is time."""
        if self._callback is not None:
            self._callback()


class ProcessLoop:
    """The loop of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def time(self) -> float:
        """Return the process's time in seconds, so that whole milliseconds come out of it again."""
        return (self._process.now_ms + 0.5) / 1000

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have it called after what happens now."""
        self._process.after(0, callback)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Any:
        """Have it called when the process's clock says so; return what can be cancelled."""
        timer = Timer(callback)
        self._process.after(max(0, math.ceil(when_s * 1000) - self._process.now_ms), timer.fire)
        return timer

    def run_in_executor(self, _: None, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have something done a little later, as a thread would."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)

        self._process.after(EXECUTOR_MS, run)
        return future
