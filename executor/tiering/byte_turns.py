"""The waiting of a broker's copies for a rate of bytes (remote.log.manager.copy.max.bytes.per.second)."""

import asyncio

from sparklog.executor.tiering.machine.byte_rate import ByteRate
from sparklog.node.clocks import monotonic_ms


class ByteTurns:
    """Pieces begin in turn; `rate` says when. The end of a cluster does not wait for a rate."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._rate = ByteRate(bytes_per_second)
        self._lifted = asyncio.Event()

    async def wait(self, size_bytes: int) -> None:
        """Return when a piece of this size may go out."""
        delay_ms = self._rate.begin(size_bytes, monotonic_ms())
        if delay_ms and not self._lifted.is_set():
            try:
                async with asyncio.timeout(delay_ms / 1000):
                    await self._lifted.wait()
            except TimeoutError:
                pass

    def limit(self, bytes_per_second: int | None, *, is_lifted: bool) -> None:
        """Change the rate; while it `is_lifted` pieces do not wait, and those that do begin at once."""
        self._rate.bytes_per_second = bytes_per_second
        if is_lifted:
            self._lifted.set()
        else:
            self._lifted.clear()
