"""Copies each committed state of the metadata to the object store, soon after a change and in the background.

Only the newest state counts: while the store is slow or away changes pile up to one. The controller's loop
takes note of an image and nothing more; the snapshot is encoded in a thread. An upload that takes long is
followed by a longer pause, so that a large and busy cluster spends at most a tenth of its time on them.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from sparklog.driver.controller.remote.metadata_store import MetadataStore, PrefixLostError
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.remote_log.object_store import StoreError

BACKOFF: Final = ExponentialBackoff(first_ms=250, max_ms=10_000)
PAUSE_TIMES: Final = 9
"""The pause after an upload, in multiples of its time, if that is longer than the usual pause."""

logger = logging.getLogger(__name__)


class MetadataUpload:
    """The background copies of one controller; belongs to its loop."""

    def __init__(
        self, metadata: MetadataStore, cluster_id: str, lag_ms: int, on_lost: Callable[[str], None]
    ) -> None:
        """Copy within `lag_ms` of a change; `on_lost` gets the reason why another application goes on."""
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._pause_s = lag_ms / 1_000 / 2
        self._on_lost = on_lost
        self._newest: MetadataSnapshot | None = None
        self._changed = asyncio.Event()
        self._saving = asyncio.Lock()
        self._is_final = self._is_copied = False
        """The marks of the saved states; changes after `save_last` belong to the cluster's end, too."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.failure: str | None = None
        """Why the newest state is not in the store; None while nothing fails."""
        self.saved_offset = 0
        """The metadata below it is in the store."""

    def committed(self, snapshot: MetadataSnapshot) -> None:
        """Note a committed state; it is copied soon."""
        self._newest = snapshot
        self._changed.set()

    async def save_last(self, *, is_copied: bool) -> None:
        """Copy the newest state as the last one of the cluster; `is_copied`: so are all records.

        Raises:
            PrefixLostError.
            StoreError.
        """
        self._is_final, self._is_copied = True, is_copied
        if self._newest is not None:
            await self._save(self._newest)

    async def close(self, timeout_s: float) -> None:
        """Copy the newest state, if the store takes it within `timeout_s`; end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        newest = self._newest
        if newest is None or newest.snapshot_id.end_offset <= self.saved_offset:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._save(newest)
        except (StoreError, PrefixLostError, TimeoutError) as error:
            logger.error("The last changes of the metadata are not copied to the store: %s", error)

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(self._pause_s)
                self._changed.clear()
                snapshot = self._newest
                assert snapshot is not None, "it has changed"
                began_s = time.monotonic()
                try:
                    await self._save(snapshot)
                except StoreError as error:
                    if self.failure is None:
                        logger.error("The metadata could not be copied to the store; retrying: %s", error)
                    self.failure = str(error)
                    self._changed.set()
                    await asyncio.sleep(BACKOFF.pause_ms(failures) / 1_000)
                    failures += 1
                else:
                    if self.failure is not None:
                        logger.info("The metadata is copied to the store again")
                    self.failure, failures = None, 0
                    await asyncio.sleep(max(0.0, (time.monotonic() - began_s) * PAUSE_TIMES - self._pause_s))
        except PrefixLostError as error:
            self._on_lost(str(error))
        except Exception as error:  # of a copy only: the cluster goes on
            logger.exception("The metadata is not copied to the store any more")
            self.failure = str(error)

    async def _save(self, snapshot: MetadataSnapshot) -> None:
        async with self._saving:
            if self._is_final or snapshot.snapshot_id.end_offset > self.saved_offset:
                await self._metadata.save(
                    self._cluster_id, snapshot, is_final=self._is_final, is_copied=self._is_copied
                )
                self.saved_offset = snapshot.snapshot_id.end_offset
