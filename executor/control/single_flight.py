"""One request at a time to the controller; what is to be sent meanwhile goes into the next."""

import asyncio
from collections.abc import Awaitable, Callable


class SingleFlight:
    """A task that runs while there is something to send; belongs to the event loop."""

    def __init__(self, send_waiting: Callable[[], Awaitable[None]]) -> None:
        """`send_waiting` sends until nothing waits any more."""
        self._send_waiting = send_waiting
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self) -> None:
        """Send what waits now, unless that is under way: it then sees what has come."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop, whatever waits or has not been answered: nobody is left to act on it."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._send_waiting()
        finally:
            self._task = None
