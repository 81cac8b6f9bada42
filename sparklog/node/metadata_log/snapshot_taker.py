"""Writes snapshots of the metadata on schedule, in the background, and deletes old ones.

No request waits for a snapshot, and a failed one only makes the next replay longer: the log has all records.
One snapshot is written at a time. Call everything on the log's loop.
"""

import asyncio
import logging
from collections.abc import Callable

from sparklog.node.config import SnapshotLimits
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.snapshot_schedule import SnapshotSchedule
from sparklog.node.metadata_log.snapshot_store import SnapshotStore
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import TimestampMs

logger = logging.getLogger(__name__)


class SnapshotTaker:
    def __init__(
        self, store: SnapshotStore, log: Log, limits: SnapshotLimits, now_ms: Callable[[], TimestampMs]
    ) -> None:
        self._store = store
        self._log = log
        self._limits = limits
        self._now_ms = now_ms
        self._schedule = SnapshotSchedule(limits, now_ms())
        self._taking: asyncio.Task[None] | None = None
        self.errors = 0
        """Number of snapshots that could not be written."""

    def applied(self, metadata: MetadataSnapshot, size_bytes: int) -> None:
        """Record that `size_bytes` of the committed log led to `metadata`; begin a snapshot if one is due."""
        self._schedule.replayed(size_bytes)
        if self._taking is None and self._schedule.is_due(self._now_ms()):
            self._schedule.taken(self._now_ms())
            self._taking = asyncio.get_running_loop().create_task(self._take(metadata))

    def loaded(self) -> None:
        self._schedule.taken(self._now_ms())

    async def idle(self) -> None:
        """Wait until no snapshot is being written: before the log is replaced, and before it is closed."""
        if self._taking is not None:
            await self._taking

    async def _take(self, metadata: MetadataSnapshot) -> None:
        try:
            await asyncio.to_thread(self._store.write, metadata)
            now_ms = self._now_ms()
            removed = self._store.forget_old(self._limits, now_ms)
            await asyncio.to_thread(self._store.remove, removed)
            await asyncio.to_thread(self._log.delete_files_due, now_ms)
        except KafkaError as error:
            self.errors += 1
            logger.error(
                "Could not write the snapshot %s, the next one follows on schedule: %s",
                metadata.snapshot_id,
                error,
            )
        finally:
            self._taking = None
