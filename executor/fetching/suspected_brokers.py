"""Suspicions of other brokers on this broker's event loop: connections report them, answers wait for them."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Set

from sparklog.executor.fetching.machine.suspected_brokers import SuspectedBrokers
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import BrokerRegistration, MetadataImage
from sparklog.protocol.types import BrokerId


class BrokerSuspicions:
    """A broker's `SuspectedBrokers` on its event loop, with the tasks that wait for a change."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._suspected = SuspectedBrokers()
        self._changed = asyncio.Event()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def connection_lost(self, broker_id: BrokerId) -> None:
        self._suspected.connection_lost(broker_id, self.now_ms())

    def connection_serves(self, broker_id: BrokerId) -> None:
        if self._suspected.connection_serves(broker_id):
            self._wake()

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take the image that requests are answered from now on."""
        self._suspected.image_changed(image, self.now_ms())
        self._wake()

    def just_fenced(self, asker: object, topics: Set[Hashable]) -> tuple[BrokerRegistration, ...]:
        return self._suspected.just_fenced(asker, topics, self.now_ms())

    def is_any_suspected(self, leaders: Set[BrokerId]) -> bool:
        return self._suspected.suspected_until_ms(leaders, self.now_ms()) is not None

    async def until_none_is_suspected(self, leaders: Callable[[], Awaitable[Set[BrokerId]]]) -> None:
        """Wait until none of `leaders()`, called after every change, is suspected of being lost."""
        while True:
            changed = self._changed  # while they are found out, too
            until_ms = self._suspected.suspected_until_ms(await leaders(), self.now_ms())
            if until_ms is None:
                return
            try:
                async with asyncio.timeout((until_ms - self.now_ms()) / 1000):
                    await changed.wait()
            except TimeoutError:
                continue

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` after some change."""
        while not holds():
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
