"""One request at a time to the controller; items that arrive meanwhile go into the next."""

import asyncio
from collections.abc import Awaitable, Callable


class SingleFlight:
    """A task that runs while items wait to be sent; belongs to the event loop."""

    def __init__(self, send_waiting: Callable[[], Awaitable[None]]) -> None:
        """`send_waiting` sends until no item waits."""
        self._send_waiting = send_waiting
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self) -> None:
        """Send the waiting items, unless a task does so already: it then sees the new ones."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop; waiting items and requests in flight are dropped."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._send_waiting()
        finally:
            self._task = None
