"""Log maintenance: the jobs, their intervals, and their runs on request.

Another job is a class like those in `jobs`, and a line here.

It subscribes to the metadata after the replicas: once the first image is applied, every log that can be
opened has its replica or was set aside. Before that no job runs, and the checkpoints stay unchanged, since
the logs are not known yet. At the end call `stop`, `write_checkpoints` as often as needed, `close`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from sparklog.executor.fetching.tiered_ends import TieredEnds
from sparklog.executor.logs.jobs.checkpoint import (
    Checkpoint,
    CleanerCheckpoint,
    RecoveryPointCheckpoint,
    StaleCheckpoints,
)
from sparklog.executor.logs.jobs.cleaning import CleaningJob
from sparklog.executor.logs.jobs.file_deletion import FileDeletionJob
from sparklog.executor.logs.jobs.flush import FlushJob
from sparklog.executor.logs.jobs.job import HostedLog, HostedLogs, HostedReplicas, UpkeepJob
from sparklog.executor.logs.jobs.producer_expiration import ProducerExpirationJob
from sparklog.executor.logs.jobs.retention import RetentionJob
from sparklog.executor.logs.machine.upkeep_schedule import UpkeepSchedule
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metrics import storage
from sparklog.node.metrics.histogram import SECONDS
from sparklog.node.metrics.registry import MetricRegistry
from sparklog.node.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from sparklog.node.storage.directory.directory_checkpoints import log_start_offset_to_keep
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)


class UpkeepScheduler:
    """The jobs over the directories of one broker, at the times of `upkeep_schedule`.

    Each run is a task of its own, of one job on one directory. A run that takes long or fails delays the next
    one of its own job and directory only.
    """

    def __init__(self, jobs: Sequence[UpkeepJob], directories: Sequence[LogDirectory]) -> None:
        self._jobs = jobs
        self._directories = directories
        self._schedule: UpkeepSchedule[tuple[UpkeepJob, LogDirectory]] = UpkeepSchedule()
        self._running: set[asyncio.Task[None]] = set()

    def start(self, now_ms: int) -> None:
        """Count the intervals from now on."""
        for directory in self._directories:
            for job in self._jobs:
                first_due_ms = now_ms if job.is_due_at_start else now_ms + job.interval_ms
                self._schedule.add((job, directory), interval_ms=job.interval_ms, first_due_ms=first_due_ms)

    @property
    def next_due_ms(self) -> float:
        """The time of the next run; infinity if none waits for its time."""
        return self._schedule.next_due_ms

    def tick(self, now_ms: int) -> None:
        for job, directory in self._schedule.begin_due(now_ms):
            task = asyncio.get_running_loop().create_task(self._run(job, directory, now_ms))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def interval_changed(self, job: UpkeepJob) -> None:
        for directory in self._directories:
            self._schedule.change_interval((job, directory), job.interval_ms)

    async def stop(self) -> None:
        """Wait for the runs under way; do not call `tick` again."""
        await asyncio.gather(*self._running)

    async def _run(self, job: UpkeepJob, directory: LogDirectory, now_ms: int) -> None:
        try:
            if directory.failure is None:
                await job.run(directory, now_ms)
        except Exception:
            logger.exception(
                "%s: %s failed, and is tried again in %d ms", directory.path, job.name, job.interval_ms
            )
        finally:
            self._schedule.ended((job, directory))


_BLOCKING_JOBS: Final = 7
"""The jobs of one directory that wait for the disk, each for itself: flush, deletion, four checkpoints, and
the search for dirty logs. Cleanings have threads of their own.
"""


class LogUpkeep:
    def __init__(
        self,
        broker_id: BrokerId,
        replicas: HostedReplicas,
        directories: Sequence[LogDirectory],
        directory_of: Callable[[Log], LogDirectory],
        on_failed: Callable[[LogDirectory, Exception], None],
        config: BrokerConfig,
        metrics: MetricRegistry,
        tiered_ends: TieredEnds,
    ) -> None:
        self._directories = directories
        self._directory_of = directory_of
        self._broker_id = broker_id
        self._started_with = config
        self._logs = logs = HostedLogs(replicas, threads=_BLOCKING_JOBS * len(directories))
        self._recovery_points = RecoveryPointCheckpoint(
            "recovery-point-checkpoint",
            config.log_flush_offset_checkpoint_interval_ms,
            logs,
            on_failed,
            lambda replica: replica.log.recovery_point if replica.log.has_files else None,
            RECOVERY_POINT_CHECKPOINT,
        )
        self._checkpoints: Sequence[Checkpoint] = (
            self._recovery_points,
            Checkpoint(
                "log-start-offset-checkpoint",
                config.log_flush_start_offset_checkpoint_interval_ms,
                logs,
                on_failed,
                lambda replica: log_start_offset_to_keep(replica.log),
                LOG_START_OFFSET_CHECKPOINT,
            ),
            Checkpoint(
                "highwatermark-checkpoint",
                config.replica_high_watermark_checkpoint_interval_ms,
                logs,
                on_failed,
                lambda replica: replica.high_watermark if replica.log.has_files else None,
                REPLICATION_OFFSET_CHECKPOINT,
            ),
        )
        self._cleaner_offsets = CleanerCheckpoint(
            "cleaner-offset-checkpoint",
            config.log_cleaner_backoff_ms,
            logs,
            on_failed,
            lambda replica: replica.log.cleaned_offset,
            CLEANER_OFFSET_CHECKPOINT,
        )
        self._cleaning = CleaningJob(logs, config, self._cleaner_offsets, metrics, tiered_ends)
        jobs: Sequence[UpkeepJob] = (
            FlushJob(
                logs,
                config.flush_check_interval_ms,
                metrics.histogram(storage.LOG_FLUSH_TIME, SECONDS, 1000.0),
            ),
            RetentionJob(logs, config.log_retention_check_interval_ms, tiered_ends),
            FileDeletionJob(logs, config.log_retention_check_interval_ms),
            ProducerExpirationJob(logs, config.producer_id_expiration_check_interval_ms),
            *self._checkpoints,
            StaleCheckpoints(logs, (*self._checkpoints, self._cleaner_offsets)),
            self._cleaning,
        )
        self._scheduler = UpkeepScheduler(jobs, directories)
        self._is_started = False

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Count the intervals from the first image on; apply dynamic configuration."""
        if delta.reconfigures_broker(self._broker_id):
            configs = image.broker_configs(None), image.broker_configs(self._broker_id)
            await self._cleaning.reconfigure(with_dynamic(self._started_with, *configs))
            self._scheduler.interval_changed(self._cleaning)
        if not self._is_started:
            self._is_started = True
            now_ms = monotonic_ms()
            # Most intervals are whole seconds: so are all times, and the broker wakes up for none alone.
            self._scheduler.start(now_ms - now_ms % 1_000)

    def tick(self, now_ms: int) -> None:
        self._scheduler.tick(now_ms)

    @property
    def next_due_ms(self) -> float:
        """The time of the next run of a job; infinity if none waits for its time."""
        return self._scheduler.next_due_ms

    async def lower_checkpoints(self, replica: HostedLog) -> None:
        """Lower the checkpoints of a truncated log to its new end."""
        directory = self._directory_of(replica.log)
        await self._recovery_points.lower(replica, directory)
        await self._cleaner_offsets.lower(replica, directory)

    async def write_checkpoints(self) -> None:
        """Write recovery points, log start offsets and high watermarks of every directory, once started."""
        if self._is_started:
            online = [directory for directory in self._directories if directory.failure is None]
            await asyncio.gather(*(self.checkpoint(directory) for directory in online))

    async def checkpoint(self, directory: LogDirectory) -> None:
        """Write recovery points, log start offsets and high watermarks of one directory."""
        now_ms = monotonic_ms()
        await asyncio.gather(*(kind.run(directory, now_ms) for kind in self._checkpoints))

    async def stop(self) -> None:
        """Begin no more runs, and wait for those under way."""
        self._logs.is_stopping = True
        self._cleaning.close()
        await self._scheduler.stop()

    def close(self) -> None:
        self._logs.close()
