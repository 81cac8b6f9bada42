"""Beginning a led log again where its tier ends (`AdoptTier`), before the leader serves anything.

On the loop, since it changes the log; only what comes from the store is waited for. The tier's records are
brought back as local segments where coordinators and the cleaner read them: of compacted topics.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Final

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.tiering.bring_back_marker import BringBackMarker, remove_marker, write_marker
from sparklog.executor.tiering.copy_threads import CopyThreads
from sparklog.executor.tiering.machine.events import AdoptTier
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.object_store import ObjectStore
from sparklog.node.remote_log.segments.row_group_batches import EncodedBatches, row_group_batches
from sparklog.node.remote_log.segments.segment_footer import open_segment
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.protocol.records.gap import gap_batch

logger = logging.getLogger(__name__)

_LOADING_POLL_S: Final = 0.02


async def producers_of(store: ObjectStore, manifest: Manifest) -> bytes | None:
    """Return the producer snapshot at the manifest's end; None if there are no producers.

    Raises:
        StoreError: it cannot be read.
    """
    return None if manifest.producers is None else (await store.get(manifest.producers)).data


class TierAdoption:
    def __init__(self, store: ObjectStore, threads: CopyThreads) -> None:
        self._store = store
        self._threads = threads
        self._on_disk: dict[Path, asyncio.Future[None]] = {}
        """The work on the files of each log, until it has ended: its adoption may be cancelled before."""

    async def adopt(self, replica: Replica, effect: AdoptTier) -> None:
        """Begin the replica's log again at the manifest's end, in the same leadership.

        Raises:
            StoreError: the tier cannot be read.
            KafkaError, OSError: of the local log.
        """
        manifest = effect.manifest
        producers = await producers_of(self._store, manifest)
        end_offset_before = replica.log.log_end_offset
        if effect.bring_back:
            await self._bring_back(replica, manifest, producers)
        else:
            replica.log.adopt(
                leader_epochs=manifest.leader_epochs,
                producers=producers,
                log_start_offset=manifest.log_start_offset,
                end_offset=manifest.end_offset,
                now_ms=wall_clock_ms(),
            )
        # In one job: where hundreds of logs are adopted, a second one waits behind the first ones of all.
        await self._run_on_disk(replica.log, partial(_flush, replica.log))
        replica.restart_at_log_end()
        logger.info(
            "%s: goes on at offset %d in leader epoch %s, where its tier ends; the log here ended at %d",
            replica,
            manifest.end_offset,
            replica.leader_epoch,
            end_offset_before,
        )

    async def _bring_back(self, replica: Replica, manifest: Manifest, producers: bytes | None) -> None:
        """Make the tier's records the local log.

        A crash leaves a shorter log than the tier's, with a marker, and the tier is adopted again.
        """
        log = replica.log
        assert replica.leader_epoch is not None
        marker = BringBackMarker(replica.leader_epoch, manifest.end_offset)
        await self._run_on_disk(log, partial(_begin_bringing_back, log, marker))
        log.truncate_fully_and_start_at(manifest.log_start_offset)
        replica.load_producers()
        while log.loading is not None:  # noqa: ASYNC110  (only of a log that a truncation has cut before)
            await asyncio.sleep(_LOADING_POLL_S)
        async for some in self._batches(manifest):
            for header, records in zip(some.parts[::2], some.parts[1::2], strict=True):
                log.append_as_follower(b"".join((header, records)), wall_clock_ms())
                await asyncio.sleep(0)
        # The tier has no markers and nothing of aborted transactions. Readers would wait for these offsets.
        epochs = LeaderEpochs(EpochEntry(*entry) for entry in manifest.leader_epochs)
        epoch = epochs.epoch_at(manifest.end_offset - 1)
        while log.log_end_offset < manifest.end_offset:
            log.append_as_follower(gap_batch(log.log_end_offset, manifest.end_offset, epoch), wall_clock_ms())
        log.take_tier_state(leader_epochs=manifest.leader_epochs, producers=producers, now_ms=wall_clock_ms())

    async def _run_on_disk(self, log: Log, work: Callable[[], None]) -> None:
        """Run blocking work on a log's files, after that of an adoption that was cancelled.

        Its thread goes on, and would remove the marker that the next adoption has written.
        """
        directory = log.directory
        while (before := self._on_disk.get(directory)) is not None:
            await asyncio.wait([before])
        job = self._on_disk[directory] = asyncio.ensure_future(self._threads.run(work))
        job.add_done_callback(lambda _: self._on_disk.pop(directory))
        await asyncio.shield(job)

    async def _batches(self, manifest: Manifest) -> AsyncIterator[EncodedBatches]:
        """Yield the records of the tier as batches, a few MiB at a time."""
        for segment in manifest.segments:
            opened = await open_segment(self._store, segment.name, segment.size_bytes)
            for index in opened.footer.groups_within(segment.base_offset, segment.end_offset):
                steps = row_group_batches(
                    await opened.row_group(index),
                    opened.footer,
                    index,
                    start_offset=max(segment.base_offset, manifest.log_start_offset),
                    end_offset=segment.end_offset,
                    leader_epochs=manifest.leader_epochs,
                )
                while (step := await self._threads.run(partial(next, steps, None))) is not None:
                    yield step


def _begin_bringing_back(log: Log, marker: BringBackMarker) -> None:
    """Put on the disk what must be there before the first record. Blocks."""
    log.sync_identity()
    write_marker(log.directory, marker)


def _flush(log: Log) -> None:
    """Put an adopted log on the disk; it is whole from then on. Blocks."""
    log.flush()
    remove_marker(log.directory)
