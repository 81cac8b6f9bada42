"""Brokers that are late, on purpose: a test that passes by luck does not pass among them.

    HINDERED=seed python -m pytest tests/compat/test_librdkafka_admin.py

In every broker's process (`tests/broker_process.py`) the metadata is acted upon up to a second after it was
committed, by one broker sooner and by another later; followers fetch, and coordinators have markers written,
a moment later; and the loop stands still again and again. All of it happens on a busy machine by itself, to
one run of the tests in hundreds.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sparklog.executor.coordinators.transactions.marker_sender import MarkerSender
from sparklog.executor.fetching.fetcher import Fetcher
from sparklog.executor.metadata.publisher import MetadataPublisher

HINDERED: Final = "HINDERED"
"""The environment variable; its value is the seed."""
METADATA_S: Final = (0.0, 0.0, 0.5, 1.0)
FETCH_S: Final = 0.05
MARKERS_S: Final = 0.3
STALL_S: Final = 0.02
BETWEEN_STALLS_S: Final = 0.1


async def hinder(node_id: int) -> None:
    """Be in this broker's way for as long as it runs, if that is asked for."""
    if (seed := os.environ.get(HINDERED)) is None:
        return
    chance = random.Random(f"{seed} {node_id}")

    def behind_s(publisher: MetadataPublisher) -> float:
        return 0.0 if publisher._loader.unread is None else chance.choice(METADATA_S)

    _delay(MetadataPublisher, "_go_on", behind_s)
    _delay(Fetcher, "_round", lambda _: FETCH_S)
    _delay(MarkerSender, "_send", lambda _: MARKERS_S)
    while True:
        await asyncio.sleep(BETWEEN_STALLS_S)
        asyncio.get_running_loop().call_soon(time.sleep, STALL_S)


def _delay(owner: type, name: str, delay_s: Callable[[Any], float]) -> None:
    method: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def late(self: Any, *arguments: Any) -> Any:
        await asyncio.sleep(delay_s(self))
        return await method(self, *arguments)

    setattr(owner, name, late)
