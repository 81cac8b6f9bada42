"""The checkpoint files of the directories: their content, and when they are written.

Each kind is a job with an interval of its own. A file with too low an offset costs time after a crash, so it
may wait, unless it costs a whole segment. With too high an offset recovery would trust records that were
never fsynced, or a recreated topic would begin where its predecessor did. Both are corrected at once
(`StaleCheckpoints` compares every second): after the flush of a rolled segment, after a truncation, and when
a log gets a name that a file still has. A file keeps its offsets of logs that are offline or could not be
opened. A file that the disk refuses takes its directory offline.

Offsets that recovery trusts without a check (`TrustedCheckpoint`) are lowered before a truncated log takes in
records.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from sparklog.executor.logs.jobs.job import HostedLog, HostedLogs
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import Offset, TopicPartition

logger = logging.getLogger(__name__)


class Checkpoint:
    is_due_at_start = True
    """A file may name deleted logs."""

    def __init__(
        self,
        name: str,
        interval_ms: int,
        logs: HostedLogs,
        on_failed: Callable[[LogDirectory, Exception], None],
        offset_of: Callable[[HostedLog], Offset | None],
        file_name: str,
    ) -> None:
        """`offset_of` returns the offset of a replica to write; None for none."""
        self.name = name
        self.interval_ms = interval_ms
        self._logs = logs
        self._on_failed = on_failed
        self._offset_of = offset_of
        self._file_name = file_name
        self._written: dict[LogDirectory, Mapping[TopicPartition, Offset]] = {}
        """The content of the files, as far as known."""
        self._writing: defaultdict[LogDirectory, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One write at a time: an older one must not overwrite a newer one."""

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        async with self._writing[directory]:
            await self._write(directory)

    def is_wrong_about(self, replicas: Iterable[HostedLog], directory: LogDirectory) -> bool:
        """Whether the file has a higher offset than one of these replicas, or one that is far too low."""
        written = self._said(directory) or {}
        for replica in replicas:
            said = written.get(replica.topic_partition)
            if said is not None:
                offset = self._offset_of(replica)
                if offset is None or offset < said:
                    return True
        return False

    def _said(self, directory: LogDirectory) -> Mapping[TopicPartition, Offset] | None:
        return self._written.get(directory)

    def _about_to_write(self, replica: HostedLog, offset: Offset) -> None:
        """Note that a file may contain this offset from now on."""

    async def _write(self, directory: LogDirectory) -> None:
        offsets: dict[TopicPartition, Offset] = {}
        hosted: set[TopicPartition] = set()
        async for part in self._logs.all_on(directory):
            for replica in part:
                hosted.add(replica.topic_partition)
                offset = self._offset_of(replica)
                if offset is not None:
                    offsets[replica.topic_partition] = offset
                    self._about_to_write(replica, offset)
        if directory.failure is not None:
            return
        try:
            written = await self._logs.run_in_thread(
                partial(directory.checkpoints.write, self._file_name, offsets, hosted)
            )
        except (KafkaError, OSError) as error:
            if directory.is_failed_by(error):
                self._on_failed(directory, error)
            else:
                logger.warning("%s: a checkpoint is written later: %s", directory.path, error)
        else:
            self._written[directory] = written


class TrustedCheckpoint(Checkpoint, ABC):
    """A checkpoint that must not exceed a log's end when the log takes in records."""

    async def lower(self, replica: HostedLog, directory: LogDirectory) -> None:
        """Lower the offset of a truncated log in the file to its new end.

        Before that the log takes in no records (Kafka's LogManager.truncateTo). If the write fails,
        `Log.is_checkpointed_too_high` stays set.
        """
        async with self._writing[directory]:
            # One run serves all logs truncated before it.
            if replica.log.is_checkpointed_too_high and not self._says_at_most(replica, directory):
                await self._write(directory)
            if self._says_at_most(replica, directory):
                self._note(replica.log, self._offset_of(replica) or 0)

    def _says_at_most(self, replica: HostedLog, directory: LogDirectory) -> bool:
        said = self._said(directory)
        return said is not None and said.get(replica.topic_partition, 0) <= (self._offset_of(replica) or 0)

    def _about_to_write(self, replica: HostedLog, offset: Offset) -> None:
        self._note(replica.log, max(self._noted(replica.log), offset))

    @abstractmethod
    def _noted(self, log: Log) -> Offset:
        """Return the highest offset that the file may have of a log."""

    @abstractmethod
    def _note(self, log: Log, offset: Offset) -> None:
        """Note on a log the highest offset that the file may have of it."""


class RecoveryPointCheckpoint(TrustedCheckpoint):
    """Recovery points: the offset up to which each log is flushed, and which recovery skips after a crash."""

    def is_wrong_about(self, replicas: Iterable[HostedLog], directory: LogDirectory) -> bool:
        """Also if recovery would read flushed records of segments before the active one."""
        written = self._written.get(directory, {})
        return super().is_wrong_about(replicas, directory) or any(
            written.get(replica.topic_partition, 0)
            < replica.log.segments.active.base_offset
            <= replica.log.recovery_point
            for replica in replicas
        )

    def _noted(self, log: Log) -> Offset:
        return log.checkpointed_recovery_point

    def _note(self, log: Log, offset: Offset) -> None:
        log.checkpointed_recovery_point = offset


class CleanerCheckpoint(TrustedCheckpoint):
    """The offset up to which each log was cleaned; written after each cleaning, and when it is wrong."""

    def _said(self, directory: LogDirectory) -> Mapping[TopicPartition, Offset]:
        """Return the file's content; it may be older than this process, so it is read at first."""
        said = self._written.get(directory)
        return directory.checkpoints.read(self._file_name) if said is None else said

    def _noted(self, log: Log) -> Offset:
        return log.checkpointed_cleaned_offset

    def _note(self, log: Log, offset: Offset) -> None:
        log.checkpointed_cleaned_offset = offset


class StaleCheckpoints:
    """Compares the files with the replicas, and rewrites those that are wrong."""

    name = "stale-checkpoints"
    interval_ms = 1000
    is_due_at_start = False

    def __init__(self, logs: HostedLogs, checkpoints: Sequence[Checkpoint]) -> None:
        self._logs = logs
        self._checkpoints = checkpoints

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        """Write the files that must not wait."""
        wrong: set[Checkpoint] = set()
        async for part in self._logs.all_on(directory):
            wrong |= {kind for kind in self._checkpoints if kind.is_wrong_about(part, directory)}
        for kind in self._checkpoints:
            if kind in wrong:
                await kind.run(directory, now_ms)
