"""Brokers without a controller over a directory as the object store, whose clocks go by themselves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from sparklog.node.clocks import monotonic_ms
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.ownership import OWNER_NAME
from tests.unit.executor.brokers import Brokers

CONFIG: Final = {"sparklog.remote.max.lag.ms": "20", "log.retention.check.interval.ms": "20"}
SEGMENTS: Final = {"internal.segment.bytes": "10000", "local.retention.bytes": "10000"}
"""Of a topic whose local log is short."""
TICK_S: Final = 0.02


@contextlib.asynccontextmanager
async def tiered_brokers(
    directory: Path, count: int = 1, *, disks: str = "disks", **config: str
) -> AsyncIterator[Brokers]:
    """Yield brokers with the bucket in a directory; other `disks` are empty ones."""
    bucket = bucket_of(directory)
    bucket.mkdir(exist_ok=True)
    (bucket / OWNER_NAME).touch()
    (directory / disks).mkdir(exist_ok=True)
    given = {"sparklog.remote.uri": bucket.as_uri(), **CONFIG, **config}
    async with asyncio.timeout(60), Brokers(directory / disks, count, given, owner_epoch=1) as brokers:
        ticking = asyncio.create_task(_tick(brokers))
        try:
            yield brokers
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)


def bucket_of(directory: Path) -> Path:
    return directory / "bucket"


def manifest_of(brokers: Brokers, broker_id: int, topic: object) -> Manifest | None:
    """Return the newest manifest that a leader knows."""
    tier = brokers.replica(broker_id, topic).tier  # type: ignore[arg-type]
    return None if tier is None else tier.manifest


async def _tick(brokers: Brokers) -> None:
    while True:
        for broker in list(brokers.brokers.values()):
            remote_log = broker.replicas.remote_log
            broker.replicas.tick(monotonic_ms())
            if remote_log is not None:
                remote_log.tick_now()
        await asyncio.sleep(TICK_S)
