"""The snapshots beside one replica of the metadata log: their list, reading the newest, writing another.

The rules this module keeps:

- Log and snapshots have no gap between them: the log starts at 0 or at one of the snapshots, and ends at the
  newest one or above it. `open` restores this after a crash, and refuses a log for which it can't.
- An unreadable snapshot is set aside, and the one before it is used.
- Records are deleted only below a snapshot that is on the disk.

Order for callers: `open` (blocks), then `write`, `downloaded` and `remove` in threads, or `download`, one at
a time; `forget_old`, `replace_log` and `mark_start` change the log and belong on its loop. The caller ensures
that a snapshot contains only committed records.

Source: KIP-630.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest

from sparklog.node.config import SnapshotLimits
from sparklog.node.metadata_log.machine.snapshot_batches import (
    MAX_BATCH_BYTES,
    DamagedSnapshotError,
    MetadataSnapshot,
    decode_snapshot,
    encode_snapshot,
    read_last_timestamp,
)
from sparklog.node.metadata_log.machine.snapshot_download import SnapshotDownload
from sparklog.node.metadata_log.machine.snapshot_schedule import (
    KeptSnapshot,
    SegmentSize,
    start_after_cleaning,
)
from sparklog.node.metadata_log.snapshot_files import (
    PartialSnapshot,
    delete_snapshot,
    list_snapshots,
    remove_leftovers,
    set_aside,
    snapshot_path,
    snapshot_size_bytes,
)
from sparklog.node.storage.checkpoints import CorruptCheckpointError, read_leader_epochs
from sparklog.node.storage.file_region import FileRegion, LogFile
from sparklog.node.storage.files import LEADER_EPOCH_CHECKPOINT, storage_errors
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import HEADER_BYTES, read_header
from sparklog.protocol.types import Offset, SnapshotId, TimestampMs

logger = logging.getLogger(__name__)

_SMALLEST_BATCH_BYTES: Final = HEADER_BYTES


class SnapshotStore:
    """The snapshots beside `log`. Created by `open`."""

    def __init__(self, log: Log, kept: Sequence[KeptSnapshot]) -> None:
        self.log = log
        self._kept = tuple(kept)
        self._downloaded: KeptSnapshot | None = None
        """A snapshot on the disk at which the log does not start yet."""

    @classmethod
    def open(cls, directory: Path, open_log: Callable[[Offset], Log]) -> tuple[Self, MetadataSnapshot | None]:
        """Open the log in `directory` and its snapshots; return them and the newest one's contents. Blocks.

        `open_log` takes the presumed log start offset. Closes the gap that a crash left between a downloaded
        snapshot and a log that was not replaced.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; also if the log starts above 0 and no snapshot is readable.
        """
        remove_leftovers(directory)
        newest: MetadataSnapshot | None = None
        kept: list[KeptSnapshot] = []
        for snapshot_id in reversed(list_snapshots(directory)):
            path = snapshot_path(directory, snapshot_id)
            try:
                if newest is None:
                    newest = read_snapshot(path, snapshot_id)
                    last_timestamp_ms = newest.last_timestamp_ms
                else:
                    last_timestamp_ms = _last_timestamp_of(path, snapshot_id)
            except DamagedSnapshotError as error:
                set_aside(path, error.message)
                continue
            size_bytes = snapshot_size_bytes(directory, snapshot_id) or 0
            kept.insert(0, KeptSnapshot(snapshot_id, size_bytes, last_timestamp_ms))
        log = open_log(_known_start_offset(directory, kept))
        try:
            store = cls(log, kept)
            store._join()
        except BaseException:
            log.close(clean=False)
            raise
        return store, newest

    def _join(self) -> None:
        """Close any gap between log and snapshots."""
        log = self.log
        newest = self.newest
        if newest is not None and not log.log_start_offset == log.log_end_offset == newest.end_offset:
            latest_epoch = log.epochs.latest or 0
            if newest.end_offset > log.log_end_offset or newest.leader_epoch > latest_epoch:
                logger.warning(
                    "The log in %s ends at %d in leader epoch %d; it restarts at the snapshot %s",
                    log.directory,
                    log.log_end_offset,
                    latest_epoch,
                    newest,
                )
                self.remove(self.replace_log(newest))
        self.mark_start()
        if log.log_start_offset > 0:
            start = next((each for each in self.ids if each.end_offset >= log.log_start_offset), None)
            if start is None:
                raise KafkaError(
                    ErrorCode.kafka_storage_error,
                    f"the metadata log in {log.directory} begins at offset {log.log_start_offset}, and no "
                    "snapshot of the records before it is readable; give the broker an empty directory, and "
                    "it fetches everything from the others",
                )
            log.advance_log_start_offset(start.end_offset)
        self.remove(self._drop_before(log.log_start_offset))

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        """The snapshots' ids, oldest first."""
        return tuple(kept.snapshot_id for kept in self._kept)

    @property
    def oldest(self) -> SnapshotId | None:
        """The oldest snapshot, at which the log starts unless it starts at 0."""
        return self._kept[0].snapshot_id if self._kept else None

    @property
    def newest(self) -> SnapshotId | None:
        return self._kept[-1].snapshot_id if self._kept else None

    def region(self, snapshot_id: SnapshotId) -> FileRegion | None:
        """Return a snapshot's whole file, for sending; `None` if there is no such snapshot.

        The file stays readable while the region is referenced, even if the snapshot is removed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if snapshot_id not in self.ids:
            return None
        path = snapshot_path(self.log.directory, snapshot_id)
        with storage_errors(f"open {path}"):
            try:
                file = LogFile.open(path)
            except FileNotFoundError:
                return None
            return FileRegion(file, 0, file.size_bytes())

    def write(self, snapshot: MetadataSnapshot) -> None:
        """Write a snapshot of committed metadata, unless it exists or lies below the log. Blocks.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: the snapshot does not exist then.
        """
        snapshot_id = snapshot.snapshot_id
        if snapshot_id in self.ids or snapshot_id.end_offset < self.log.log_start_offset:
            return
        with PartialSnapshot(self.log.directory, snapshot_id) as partial:
            for batch in encode_snapshot(snapshot):
                partial.append(batch)
            partial.finish()
        self._keep(KeptSnapshot(snapshot_id, partial.size_bytes, snapshot.last_timestamp_ms))
        logger.info("Wrote the snapshot %s, %d bytes", snapshot_id, partial.size_bytes)

    async def download(
        self, machine: SnapshotDownload, ask: Callable[[FetchSnapshotRequest], Awaitable[Any]]
    ) -> MetadataSnapshot:
        """Fetch a snapshot from another replica; return it. The caller then calls `replace_log` or `remove`.

        Raises:
            DownloadRefusedError: the other replica refuses it.
            DamagedSnapshotError: the received bytes are not a snapshot.
            KafkaError: KAFKA_STORAGE_ERROR, or raised by `ask`.
        """
        partial = await asyncio.to_thread(PartialSnapshot, self.log.directory, machine.snapshot_id)
        try:
            while not machine.is_complete:
                data = machine.answered(await ask(machine.request()))
                await asyncio.to_thread(partial.append, data)
            return await asyncio.to_thread(self.downloaded, partial)
        finally:
            await asyncio.to_thread(partial.discard)

    def downloaded(self, partial: PartialSnapshot) -> MetadataSnapshot:
        """Read a downloaded snapshot, and give it its final name if it is complete. Blocks.

        Raises:
            DamagedSnapshotError: it is not.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        snapshot = read_snapshot(partial.path, partial.snapshot_id)
        partial.finish()
        self._downloaded = KeptSnapshot(partial.snapshot_id, partial.size_bytes, snapshot.last_timestamp_ms)
        return snapshot

    def replace_log(self, snapshot_id: SnapshotId) -> tuple[SnapshotId, ...]:
        """Let the log start, empty, where the snapshot ends; return the older snapshots, for `remove`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.log.truncate_fully_and_start_at(snapshot_id.end_offset)
        if self._downloaded is not None and self._downloaded.snapshot_id == snapshot_id:
            self._keep(self._downloaded)
            self._downloaded = None
        self.mark_start()
        return self._drop_before(snapshot_id.end_offset)

    def mark_start(self) -> None:
        """Set an empty log's leader epoch to that of the record before it, from the snapshot.

        Call it after a truncation, which may have emptied the log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        newest = self.newest
        log = self.log
        if newest is not None and log.epochs.latest is None and newest.end_offset == log.log_end_offset:
            log.assign_leader_epoch(newest.leader_epoch)

    def forget_old(self, limits: SnapshotLimits, now_ms: TimestampMs) -> tuple[SnapshotId, ...]:
        """Move the log start by the limits; return the snapshots below it, for `remove`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = self.log
        segments = [SegmentSize(segment.base_offset, segment.size_bytes) for segment in log.segments.all]
        start = start_after_cleaning(self._kept, segments, limits, now_ms)
        if start is None:
            return ()
        logger.info("The metadata log in %s now starts at the snapshot %s", log.directory, start)
        log.advance_log_start_offset(start.end_offset)
        log.delete_old_segments(now_ms, start.end_offset)
        return self._drop_before(start.end_offset)

    def remove(self, snapshot_ids: Sequence[SnapshotId]) -> None:
        """Delete the files of unused snapshots. Blocks.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        for snapshot_id in snapshot_ids:
            logger.info("Removing the snapshot %s", snapshot_id)
            delete_snapshot(self.log.directory, snapshot_id)

    def _keep(self, snapshot: KeptSnapshot) -> None:
        others = (kept for kept in self._kept if kept.snapshot_id != snapshot.snapshot_id)
        self._kept = tuple(sorted((*others, snapshot), key=lambda kept: kept.snapshot_id))

    def _drop_before(self, offset: Offset) -> tuple[SnapshotId, ...]:
        dropped = tuple(kept.snapshot_id for kept in self._kept if kept.snapshot_id.end_offset < offset)
        self._kept = self._kept[len(dropped) :]
        return dropped


def read_snapshot(path: Path, snapshot_id: SnapshotId) -> MetadataSnapshot:
    """Return the snapshot in a file. Blocks.

    Raises:
        DamagedSnapshotError: the file is damaged.
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    return decode_snapshot(snapshot_id, _batches_in(path, snapshot_id))


def _known_start_offset(directory: Path, kept: Sequence[KeptSnapshot]) -> Offset:
    """Return the end of the snapshot at which the log was last made to start; 0 if none of these remains.

    The log's leader epochs start there. The log may still have records below, which serve if the snapshot is
    unreadable.
    """
    try:
        epochs = read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT)
    except CorruptCheckpointError:  # which opening the log mends, and reports
        return 0
    ends = {snapshot.snapshot_id.end_offset for snapshot in kept}
    return epochs[0].start_offset if epochs and epochs[0].start_offset in ends else 0


def _last_timestamp_of(path: Path, snapshot_id: SnapshotId) -> TimestampMs:
    """Return the timestamp from a snapshot's first batch; the rest of the file is not read."""
    first = next(_batches_in(path, snapshot_id), None)
    if first is None:
        raise DamagedSnapshotError(snapshot_id, "it is empty")
    return read_last_timestamp(snapshot_id, first)


def _batches_in(path: Path, snapshot_id: SnapshotId) -> Iterator[bytes]:
    """Yield the batches of a file, one in memory at a time."""
    with storage_errors(f"read {path}"), path.open("rb") as file:
        while head := file.read(_SMALLEST_BATCH_BYTES):
            if len(head) < _SMALLEST_BATCH_BYTES:
                raise DamagedSnapshotError(snapshot_id, f"it ends within a batch of {len(head)} bytes")
            size_bytes = read_header(head).size_bytes
            if not _SMALLEST_BATCH_BYTES <= size_bytes <= MAX_BATCH_BYTES:
                raise DamagedSnapshotError(snapshot_id, f"it has a batch of {size_bytes} bytes")
            yield head + file.read(size_bytes - len(head))
