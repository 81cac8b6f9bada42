"""Work on files that goes on beside the loop's other work, one part after the other."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class WorkInOrder:
    """For one event loop. `begin` as often as there is work; `end` before the files are closed."""

    def __init__(self) -> None:
        self._last: asyncio.Task[None] | None = None
        self._has_failed = asyncio.Event()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work once all that was begun before is done."""
        self._last = asyncio.get_running_loop().create_task(self._after(self._last, work))

    async def end(self, timeout_s: float | None) -> None:
        """Wait until all work is done, for `timeout_s` at most if that is not None.

        Raises:
            BaseException: the first error of the work so far; what was to follow is not done.
        """
        last = self._last
        if last is not None and not last.done():
            await asyncio.wait([last], timeout=timeout_s)
        if last is not None and last.done():
            last.result()

    async def fail(self) -> None:
        """Wait until work fails, whether or not anything waits for its end.

        Raises:
            Exception: the first error of the work.
        """
        await self._has_failed.wait()
        await self.end(None)

    async def _after(self, before: asyncio.Task[None] | None, work: Coroutine[Any, Any, None]) -> None:
        if before is not None:
            try:
                await before
            except BaseException:
                work.close()
                raise
        try:
            await work
        except Exception:
            self._has_failed.set()
            raise
