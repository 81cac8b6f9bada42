"""Threads for calls of a catalogue, which block for as long as it likes.

They are daemons: a catalogue that does not answer holds up neither the loop nor the end of the process.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")

MOST_CALLS: Final = 4
"""At once."""


class CatalogThreads:
    """Belongs to a loop."""

    def __init__(self) -> None:
        self._room: Final = asyncio.Semaphore(MOST_CALLS)

    async def call(self, function: Callable[[], T]) -> T:
        """Return the result of a call in a thread; a cancelled caller leaves the call to itself."""
        async with self._room:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[T] = loop.create_future()
            threading.Thread(
                target=_run, args=(function, loop, answer), name="sparklog table", daemon=True
            ).start()
            return await answer


def _run(function: Callable[[], T], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> None:
    def settle(result: T | None, error: Exception | None) -> None:
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    try:
        settled = (function(), None)
    except Exception as error:
        settled = (None, error)  # type: ignore[assignment]
    with suppress(RuntimeError):  # The loop has ended, and nothing waits.
        loop.call_soon_threadsafe(settle, *settled)
