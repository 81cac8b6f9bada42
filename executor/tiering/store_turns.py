"""Turns of led partitions at the store: those that clients wait for are first.

A broker with an empty disk becomes leader of hundreds of partitions at once. No leader serves before its
manifest was read, and clients ask for few of them at first.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final, Protocol


class WantedReplica(Protocol):
    is_wanted: bool
    """Whether a client was refused because the replica does not serve yet."""


_LOOKED_THROUGH: Final = 500
"""Waiting leaders among which a wanted one is sought for each turn."""


class StoreTurns:
    def __init__(self, count: int) -> None:
        """Let `count` be under way at a time."""
        self._free = count
        self._leaders: deque[tuple[WantedReplica, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, replica: WantedReplica) -> AsyncIterator[None]:
        """Wait for a turn of a leader, and have it."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(replica)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, replica: WantedReplica) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._leaders.append((replica, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._leaders:
            turn = self._next_leader()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _next_leader(self) -> asyncio.Future[None]:
        first = islice(self._leaders, _LOOKED_THROUGH)
        place = next((place for place, (replica, _) in enumerate(first) if replica.is_wanted), 0)
        _, turn = self._leaders[place]
        del self._leaders[place]
        return turn
