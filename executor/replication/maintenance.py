"""What logs need from time to time: retention, flushing, checkpoints, forgotten files.

`due` says what is due at a time; the caller runs it. Retention decides on the loop (it changes the log)
and unlinks beside it; fsyncs and checkpoint files are written beside it, one run at a time, so that a slow
disk delays the next run and nothing else.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from executor.replication.replica import Replica
from sparklog.errors import KafkaError
from sparklog.storage.log import Log
from sparklog.storage.log_directory import LogDirectory
from sparklog.types import Offset, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaintenanceIntervals:
    """How often each kind of work is done, in milliseconds."""

    retention_ms: int
    checkpoint_ms: int
    flush_ms: int | None
    """None leaves flushing to the operating system, as Kafka's default does."""


class Maintenance:
    """Periodic work on the logs of one broker."""

    def __init__(
        self,
        replicas: Iterable[Replica],
        directories: Sequence[LogDirectory],
        directory_of: Callable[[Log], LogDirectory],
        intervals: MaintenanceIntervals,
        executor: Executor,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._directory_of = directory_of
        self._intervals = intervals
        self._executor = executor
        self._retention_due_ms = self._checkpoint_due_ms = 0
        self._flush_due_ms: int | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, now_ms: int) -> None:
        """Count the intervals from now on."""
        intervals = self._intervals
        self._retention_due_ms = now_ms + intervals.retention_ms
        self._checkpoint_due_ms = now_ms + intervals.checkpoint_ms
        self._flush_due_ms = None if intervals.flush_ms is None else now_ms + intervals.flush_ms

    def tick(self, now_ms: int) -> None:
        """Start what is due, unless the last run has not ended."""
        if self._running is not None:
            return
        work = []
        if now_ms >= self._retention_due_ms:
            self._retention_due_ms = now_ms + self._intervals.retention_ms
            work.append(self.apply_retention)
        if self._flush_due_ms is not None and now_ms >= self._flush_due_ms:
            self._flush_due_ms = now_ms + (self._intervals.flush_ms or 0)
            work.append(self.flush)
        if now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + self._intervals.checkpoint_ms
            work.append(self.write_checkpoints)
        if work:
            self._running = asyncio.get_running_loop().create_task(self._run(work))

    async def stop(self) -> None:
        """Wait for the run under way."""
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self, work: Sequence[Callable[[], object]]) -> None:
        try:
            for step in work:
                await step()  # type: ignore[misc]
        finally:
            self._running = None

    async def apply_retention(self) -> None:
        """Drop old segments of every log, then unlink what was dropped long enough ago."""
        wall_ms = time.time_ns() // 1_000_000
        for replica in [replica for replica in self._replicas if not replica.offline]:
            start_before = replica.log.log_start_offset
            try:
                replica.log.delete_old_segments(wall_ms, replica.high_watermark)
            except (KafkaError, OSError) as error:
                replica.fail_if_storage(error)
                continue
            if replica.log.log_start_offset != start_before:
                replica.log_start_offset_moved()
        logs = [replica.log for replica in self._replicas if not replica.offline]
        await asyncio.get_running_loop().run_in_executor(self._executor, self._remove_files, logs, wall_ms)

    def _remove_files(self, logs: Sequence[Log], wall_ms: int) -> None:
        for log in logs:
            try:
                log.delete_files_due(wall_ms)
            except OSError as error:
                logger.warning("%s: deleted segments were not removed: %s", log.directory, error)
        for directory in self._directories:
            try:
                directory.remove_directories_due(wall_ms)
            except OSError as error:
                logger.warning("%s: deleted logs were not removed: %s", directory.path, error)

    async def flush(self) -> None:
        """fsync every log that has something to flush."""
        loop = asyncio.get_running_loop()
        for replica in list(self._replicas):
            log = replica.log
            if replica.offline or log.recovery_point >= log.log_end_offset:
                continue
            try:
                await loop.run_in_executor(self._executor, log.flush)
            except (KafkaError, OSError) as error:
                replica.fail_if_storage(error)

    async def write_checkpoints(self) -> None:
        """Write recovery points, log start offsets and high watermarks of every directory."""
        logs: dict[int, list[Log]] = {}
        high_watermarks: dict[int, dict[TopicPartition, Offset]] = {}
        for replica in self._replicas:
            if not replica.offline:
                place = self._directories.index(self._directory_of(replica.log))
                logs.setdefault(place, []).append(replica.log)
                high_watermarks.setdefault(place, {})[replica.topic_partition] = replica.high_watermark
        loop = asyncio.get_running_loop()
        for place, directory in enumerate(self._directories):
            await loop.run_in_executor(
                self._executor,
                _write_checkpoints,
                directory,
                logs.get(place, []),
                high_watermarks.get(place, {}),
            )


def _write_checkpoints(
    directory: LogDirectory, logs: Sequence[Log], high_watermarks: Mapping[TopicPartition, Offset]
) -> None:
    try:
        directory.write_checkpoints(logs, high_watermarks)
    except (KafkaError, OSError) as error:
        logger.error("%s: checkpoints were not written: %s", directory.path, error)
