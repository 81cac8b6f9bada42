"""What logs need from time to time: retention, flushing, checkpoints, forgotten files.

`tick` starts what is due. Retention decides on the loop (it changes the log) and renames and unlinks beside
it; checkpoint files are written beside it, one run at a time, so that a slow disk delays the next run and
nothing else. Flushes have runs of their own (`log_flushes`): a checkpoint does not wait for a gigabyte.

Order for the caller: `start` when every log of the directories has its replica or was set aside. Before
that nothing is done, and the checkpoints stay as they are: written early, they would leave logs out.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from executor.logs.log_checkpoints import CheckpointIntervals, LogCheckpoints
from executor.logs.log_flushes import LogFlushes
from executor.partitions.replica import Replica
from executor.partitions.table import PartitionTable
from executor.process.slices import in_slices
from sparklog.clocks import wall_clock_ms
from sparklog.errors import KafkaError
from sparklog.storage.log import Log
from sparklog.storage.log_directory import LogDirectory

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 1000
"""How often checkpoints are held against the logs."""


@dataclass(frozen=True, slots=True)
class MaintenanceIntervals:
    """How often each kind of work is done, in milliseconds."""

    retention_ms: int
    producer_expiration_ms: int
    checkpoints: CheckpointIntervals
    flush_by_time_ms: int
    """How often logs are looked for that are to be flushed by flush.ms."""


class Maintenance:
    """Periodic work on the logs of one broker."""

    def __init__(
        self,
        replicas: PartitionTable,
        directories: Sequence[LogDirectory],
        directory_of: Callable[[Log], LogDirectory],
        on_failed: Callable[[LogDirectory, Exception], None],
        intervals: MaintenanceIntervals,
        executor: Executor,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._intervals = intervals
        self._executor = executor
        self._flushes = LogFlushes(replicas, directory_of, intervals.flush_by_time_ms, executor)
        self._checkpoints = LogCheckpoints(
            replicas, directories, directory_of, on_failed, intervals.checkpoints, executor
        )
        self._retention_due_ms = self._producer_expiration_due_ms = self._check_due_ms = 0
        self._started = False
        self._running: asyncio.Task[None] | None = None

    def start(self, now_ms: int) -> None:
        """Count the intervals from now on."""
        self._started = True
        self._retention_due_ms = now_ms + self._intervals.retention_ms
        self._producer_expiration_due_ms = now_ms + self._intervals.producer_expiration_ms
        self._check_due_ms = now_ms
        self._flushes.start(now_ms)
        self._checkpoints.start(now_ms)

    def tick(self, now_ms: int) -> None:
        """Start what is due, unless the last run of its kind has not ended."""
        if not self._started:
            return
        self._flushes.tick(now_ms)
        if self._running is not None:
            return
        looks = now_ms >= self._check_due_ms
        if looks:
            self._check_due_ms = now_ms + CHECK_INTERVAL_MS
        retention = now_ms >= self._retention_due_ms
        if retention:
            self._retention_due_ms = now_ms + self._intervals.retention_ms
        expiration = now_ms >= self._producer_expiration_due_ms
        if expiration:
            self._producer_expiration_due_ms = now_ms + self._intervals.producer_expiration_ms
        if retention or expiration or looks or self._checkpoints.is_due(now_ms):
            run = self._run(retention, expiration, looks, now_ms)
            self._running = asyncio.get_running_loop().create_task(run)

    async def stop(self) -> None:
        """Wait for the runs under way."""
        await self._flushes.stop()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self, retention: bool, expiration: bool, looks: bool, now_ms: int) -> None:
        try:
            if retention:
                await self._apply_retention()
            if expiration:
                await self._forget_idle_producers()
            await self._checkpoints.write(await self._checkpoints.due(now_ms, compare=looks))
        finally:
            self._running = None

    async def _apply_retention(self) -> None:
        """Drop old segments of every log, then unlink what was dropped long enough ago."""
        wall_ms = wall_clock_ms()
        async for part in in_slices(self._replicas):
            for replica in part:
                if replica in self._replicas and not replica.offline:
                    _let_go_of_old(replica, wall_ms)
        replicas = [replica for replica in self._replicas if not replica.offline]
        failed = await asyncio.get_running_loop().run_in_executor(
            self._executor, self._remove_files, replicas, wall_ms
        )
        for replica, failure in failed:
            replica.fail_if_storage(failure)

    async def _forget_idle_producers(self) -> None:
        """Forget the producers that have written nothing for long."""
        wall_ms = wall_clock_ms()
        async for part in in_slices(self._replicas):
            for replica in part:
                replica.log.remove_expired_producers(wall_ms)

    def _remove_files(self, replicas: Sequence[Replica], wall_ms: int) -> list[tuple[Replica, Exception]]:
        """Remove what is due; return for which logs that failed, and how."""
        failed: list[tuple[Replica, Exception]] = []
        for replica in replicas:
            try:
                replica.log.delete_files_due(wall_ms)
            except (KafkaError, OSError) as error:
                failed.append((replica, error))
        for directory in self._directories:
            if directory.failure is not None:
                continue
            try:
                directory.remove_directories_due(wall_ms)
            except (KafkaError, OSError) as error:
                logger.warning("%s: deleted logs were not removed: %s", directory.path, error)
        return failed

    async def lower_recovery_point(self, replica: Replica) -> None:
        """Have the checkpoint of recovery points say no more of a log that was cut than what is so."""
        await self._checkpoints.lower_recovery_point(replica)

    async def write_checkpoints(self) -> None:
        """Write recovery points, log start offsets and high watermarks of every directory, once started."""
        if self._started:
            await self._checkpoints.write_all()


def _let_go_of_old(replica: Replica, wall_ms: int) -> None:
    """Drop the segments that the topic's retention lets go."""
    start_before = replica.log.log_start_offset
    try:
        replica.log.delete_old_segments(wall_ms, replica.high_watermark)
    except (KafkaError, OSError) as error:
        replica.fail_if_storage(error)
        return
    if replica.log.log_start_offset != start_before:
        replica.log_start_offset_moved()
