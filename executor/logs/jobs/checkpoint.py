"""The checkpoint files of the directories: when they are written, and what they say.

Each kind is a job with an interval of its own. A file that says too little costs time after a crash, so that
may wait, unless it costs a whole segment. One that says too much would have recovery trust what was never
fsynced, or a topic that was made again begin where its predecessor did. Both are written as soon as that is
seen (`StaleCheckpoints` compares every second): after what rolled has been flushed, after a truncation, and
when a log came to be under a name that a file still has. Of logs that are offline, or could not be opened, a
file goes on saying what it said. A file that the disk refuses takes its directory offline.

What is trusted without a look (`TrustedCheckpoint`) is lowered before a log that was cut takes anything in.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from sparklog.errors import KafkaError
from sparklog.executor.logs.jobs.job import HostedLog, HostedLogs
from sparklog.storage.log import Log
from sparklog.storage.log_directory import LogDirectory
from sparklog.types import Offset, TopicPartition

logger = logging.getLogger(__name__)


class Checkpoint:
    """One kind of checkpoint."""

    is_due_at_start = True
    """A file may name what is gone."""

    def __init__(
        self,
        name: str,
        interval_ms: int,
        logs: HostedLogs,
        on_failed: Callable[[LogDirectory, Exception], None],
        offset_of: Callable[[HostedLog], Offset | None],
        file_name: str,
    ) -> None:
        """`offset_of` says what a file is to say of a replica; None for nothing."""
        self.name = name
        self.interval_ms = interval_ms
        self._logs = logs
        self._on_failed = on_failed
        self._offset_of = offset_of
        self._file_name = file_name
        self._written: dict[LogDirectory, Mapping[TopicPartition, Offset]] = {}
        """What the files say, as far as that is known."""
        self._writing: defaultdict[LogDirectory, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One at a time: an older one must not write over what a newer one wrote."""

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        """Write the directory's file."""
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
        """Return what the directory's file says, if that is known."""
        return self._written.get(directory)

    def _about_to_write(self, replica: HostedLog, offset: Offset) -> None:
        """A file may say this from now on."""

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
            written = await self._logs.beside_loop(
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
    """One that must say no more of a log than is so when the log takes something in."""

    async def lower(self, replica: HostedLog, directory: LogDirectory) -> None:
        """Have the file say no more of a log that was cut than is so.

        Before that the log takes nothing in (Kafka's LogManager.truncateTo). If it cannot be done now,
        `Log.is_checkpointed_too_high` stays.
        """
        async with self._writing[directory]:
            # One run does for all that were cut before it.
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
        """Return what the file may say of a log, as was noted."""

    @abstractmethod
    def _note(self, log: Log, offset: Offset) -> None:
        """Note with a log that the file may say this of it."""


class RecoveryPointCheckpoint(TrustedCheckpoint):
    """Up to where each log is on the disk: what a start after a crash need not read."""

    def is_wrong_about(self, replicas: Iterable[HostedLog], directory: LogDirectory) -> bool:
        """Also where recovery would read what is on the disk of segments that are written to no more."""
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
    """Up to where each log was cleaned; written after each cleaning, and when it is wrong."""

    def _said(self, directory: LogDirectory) -> Mapping[TopicPartition, Offset]:
        """What was read when the logs were loaded counts: the file may be older than this process."""
        said = self._written.get(directory)
        return directory.checkpoints.read(self._file_name) if said is None else said

    def _noted(self, log: Log) -> Offset:
        return log.checkpointed_cleaned_offset

    def _note(self, log: Log, offset: Offset) -> None:
        log.checkpointed_cleaned_offset = offset


class StaleCheckpoints:
    """Holds the files against the replicas, and has those written that are wrong."""

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
