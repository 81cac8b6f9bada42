"""asyncio in simulated time: the loop of one process, on which production's tasks run as they are.

Callbacks of one turn are called in the order in which they were asked for, as asyncio does it; between turns
anything may happen. What a task raises that nobody is to see there ends the simulation.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from sparklog.protocol.errors import KafkaError
from tests.simulation.loop import EXECUTOR_MS, ProcessLoop, Timer
from tests.simulation.network import Process

set_running_loop: Callable[[Any], None] = asyncio._set_running_loop
"""Asyncio asks for the loop of the process that does something; None when nobody does."""


class Handle:
    """A callback that may be cancelled."""

    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._callback: Callable[..., None] | None = callback
        self._arguments = arguments

    def cancel(self) -> None:
        """Let it not be called."""
        self._callback = None

    def fire(self) -> None:
        """Call it."""
        if self._callback is not None:
            self._callback(*self._arguments)


class AsyncLoop(ProcessLoop):
    """What asyncio's tasks, futures and sleeps ask of the loop that is running."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._ready: deque[Handle] = deque()
        self._failure: BaseException | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def call_soon(self, callback: Callable[..., None], *arguments: Any, context: Any = None) -> Handle:
        """Have it called in the next turn."""
        handle = Handle(callback, arguments)
        # What is left of a process's tasks when it has ended does nothing any more.
        if self._process.alive:
            if not self._ready:
                self._process.after(0, self._turn)
            self._ready.append(handle)
        return handle

    def call_at(
        self, when_s: float, callback: Callable[..., None], *arguments: Any, context: Any = None
    ) -> Timer:
        """Have it called when the process's clock says so."""
        return super().call_at(when_s, Handle(callback, arguments).fire)

    def call_later(
        self, delay_s: float, callback: Callable[..., None], *arguments: Any, context: Any = None
    ) -> Timer:
        """Have it called a while from now."""
        return self.call_at(self.time() + delay_s, callback, *arguments)

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(
        self, coroutine: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
    ) -> "asyncio.Task[Any]":
        """Have a coroutine run."""
        task = asyncio.Task(coroutine, loop=self)  # type: ignore[arg-type]
        task.add_done_callback(self._ended)
        self._tasks[task] = None
        return task

    def close(self) -> None:
        """The process is no more, and so is what its tasks were about to do."""
        for task in self._tasks:
            coroutine: Any = task.get_coro()
            coroutine.close()

    def run_in_executor(self, _: None, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have something done a little later, as a thread would."""
        future = self.create_future()

        def run() -> None:
            try:
                result = function(*arguments)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                # Who waited for it may be gone; the thread has done it all the same.
                if not future.done():
                    future.set_result(result)

        self._process.after(EXECUTOR_MS, run)
        return future

    def get_debug(self) -> bool:
        """Whether asyncio is to look closer."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Nobody waited for the end of something, which says nothing: see `_ended`."""

    def _turn(self) -> None:
        ready, self._ready = self._ready, deque()
        for handle in ready:
            handle.fire()
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        """A task may be cancelled, or be refused something; whatever else it raises is a mistake."""
        del self._tasks[task]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, KafkaError):
            self._failure = error
