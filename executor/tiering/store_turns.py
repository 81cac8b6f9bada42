"""Turns of partitions at the store: led ones that clients wait for are first, then led ones, then followed.

A broker with an empty disk becomes leader of hundreds of partitions at once, and follower of more. No leader
serves before its manifest was read, and clients ask for few of them at first.
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
        self._followers: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self, replica: WantedReplica | None) -> AsyncIterator[None]:
        """Wait for a turn, and have it; `replica` is a leader, None stands for a follower."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(replica)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, replica: WantedReplica | None) -> None:
        turn = asyncio.get_running_loop().create_future()
        if replica is None:
            self._followers.append(turn)
        else:
            self._leaders.append((replica, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._leaders or self._followers:
            turn = self._next_leader() if self._leaders else self._followers.popleft()
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
