"""The turns of led partitions at the store: those that clients wait for are first, then each in its turn.

A broker with an empty disk becomes leader of hundreds of partitions at once. None serves before its manifest
was read, and clients ask for few of them at first.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class WantedReplica(Protocol):
    is_wanted: bool
    """Whether a client was refused because the replica does not serve yet."""


class StoreTurns:
    def __init__(self, count: int) -> None:
        """Let `count` be under way at a time."""
        self._free = count
        self._waiting: list[tuple[WantedReplica, asyncio.Future[None]]] = []
        """In the order in which they came."""

    @asynccontextmanager
    async def turn(self, replica: WantedReplica) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((replica, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._waiting = [waiting for waiting in self._waiting if not waiting[1].done()]
        if not self._waiting:
            self._free += 1
            return
        place = next((place for place, (replica, _) in enumerate(self._waiting) if replica.is_wanted), 0)
        self._waiting.pop(place)[1].set_result(None)
