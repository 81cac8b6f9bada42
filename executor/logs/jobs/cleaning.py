"""Compaction (Kafka's "kafka-log-cleaner-thread"): the dirtiest log first, in a process of its own.

The event loop chooses the log and replaces segments, which changes a tuple; the process cleans, and a thread
renames files. Rules kept: a log that has changed during a cleaning keeps its segments; the cleaned offset is
written after the directory is synced; of a tiered log only what the tier has is cleaned.
"""

import asyncio
import logging
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from sparklog.executor.fetching.tiered_ends import TieredEnds
from sparklog.executor.logs.cleaner_processes import CleanerProcess, CleanerProcesses, CleaningFailedError
from sparklog.executor.logs.jobs.checkpoint import CleanerCheckpoint
from sparklog.executor.logs.jobs.job import HostedLogs, HostedReplica
from sparklog.executor.logs.machine.cleaner_schedule import (
    Cleanable,
    CleanerSchedule,
    LogFacts,
    SegmentFacts,
    cleanable_part,
)
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.metrics import storage
from sparklog.node.metrics.registry import MetricRegistry
from sparklog.node.storage.cleaning.request import CleaningOutcome
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.files import NO_SPACE, is_disk_error, system_error
from sparklog.node.storage.log.log_cleaning import CleaningLimits, LogCleaning
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import HEADER_BYTES
from sparklog.protocol.types import Offset

_MIN_LOOK_MS: Final = 100
"""The shortest interval between searches for more dirty logs while a cleaning runs."""

logger = logging.getLogger(__name__)


class CleaningJob:
    name = "kafka-log-cleaner"
    is_due_at_start = False

    def __init__(
        self,
        logs: HostedLogs,
        config: BrokerConfig,
        checkpoint: CleanerCheckpoint,
        metrics: MetricRegistry,
        tiered_ends: TieredEnds,
    ) -> None:
        self._processes = CleanerProcesses(_count(config))
        self._limits = _limits(config)
        self.interval_ms = config.log_cleaner_backoff_ms
        self._schedules: defaultdict[LogDirectory, CleanerSchedule] = defaultdict(CleanerSchedule)
        self._looked_ms: int | None = None
        self._logs = logs
        self._checkpoint = checkpoint
        self._tiered_ends = tiered_ends
        self._metrics = metrics
        metrics.gauge(storage.MAX_DIRTY_PERCENT, self._max_dirty_percent)
        metrics.gauge(storage.CLEANER_LAST_RUN, self._since_looked_ms)

    def _max_dirty_percent(self) -> float:
        return max((100 * schedule.highest_dirty_ratio for schedule in self._schedules.values()), default=0.0)

    def _since_looked_ms(self) -> float | None:
        return None if self._looked_ms is None else monotonic_ms() - self._looked_ms

    async def reconfigure(self, config: BrokerConfig) -> None:
        """Apply a dynamic configuration; cleanings under way keep their limits."""
        self._limits = _limits(config)
        self.interval_ms = config.log_cleaner_backoff_ms
        await self._processes.resize(_count(config))

    def close(self) -> None:
        self._processes.close()

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        """Clean logs until none is dirty enough.

        While long cleanings run, others are looked for every log.cleaner.backoff.ms.
        """
        if directory not in self._schedules:
            schedule = self._schedules[directory]
            self._metrics.gauge(
                storage.UNCLEANABLE_PARTITIONS,
                lambda: len(schedule.set_aside),
                logDirectory=str(directory.path),
            )
        cleaning: set[asyncio.Task[None]] = set()
        failed: list[asyncio.Task[None]] = []
        while not failed:
            for _ in range(self._processes.count - len(cleaning)):
                cleaning.add(asyncio.get_running_loop().create_task(self._clean_logs(directory)))
            if cleaning:
                ended, cleaning = await asyncio.wait(
                    cleaning, timeout=max(self.interval_ms, _MIN_LOOK_MS) / 1000
                )
                failed += [task for task in ended if task.exception() is not None]
            if not cleaning:
                break
        if cleaning:
            await asyncio.wait(cleaning)
        for task in failed:
            task.result()

    async def _clean_logs(self, directory: LogDirectory) -> None:
        replica = await self._choose(directory)
        if replica is None:
            return
        try:
            async with self._processes.one() as process:
                while process is not None and replica is not None:
                    await self._clean(process, replica, directory)
                    replica = None
                    if not self._processes.are_too_many:
                        replica = await self._choose(directory)
        finally:
            if replica is not None:
                self._schedules[directory].ended(replica.topic_partition)

    async def _choose(self, directory: LogDirectory) -> HostedReplica | None:
        compacted: list[HostedReplica] = []
        async for part in self._logs.on(directory):
            compacted += [replica for replica in part if _has_something(replica)]
        for replica in compacted:
            if replica.log.config.max_compaction_lag_ms is not None:
                with suppress(KafkaError, OSError):
                    await self._logs.run_in_thread(partial(_load_first_timestamps, replica))
        copied_to = await self._copied_to(compacted)
        wall_ms = wall_clock_ms()
        here = {replica.topic_partition: replica for replica in compacted if replica in self._logs}
        if self._logs.is_stopping:
            return None
        self._looked_ms = monotonic_ms()
        chosen = self._schedules[directory].choose(
            (_facts(replica, copied_to.get(replica)) for replica in here.values() if _has_something(replica)),
            wall_ms,
            self._looked_ms,
        )
        return None if chosen is None else here[chosen.topic_partition]

    async def _copied_to(self, replicas: Iterable[HostedReplica]) -> dict[HostedReplica, Offset]:
        """Return the offsets up to which tiered logs may be cleaned.

        A record that is not in the tier yet must be there before a later one takes its place: that one may be
        lost with all disks.
        """
        copied = [replica for replica in replicas if replica.log.config.is_copied]
        return dict.fromkeys(copied, 0) | await self._tiered_ends.of(copied)

    async def _clean(self, process: CleanerProcess, replica: HostedReplica, directory: LogDirectory) -> None:
        """Clean a log, in as many rounds as it takes."""
        topic_partition = replica.topic_partition
        try:
            while replica in self._logs:
                # From here on the names of the files count, and that they are on the disk.
                await process.run_in_thread(partial(_write_out, replica))
                copied_to = await self._copied_to([replica])
                if replica not in self._logs or not _has_something(replica):
                    break
                part = cleanable_part(_facts(replica, copied_to.get(replica)), wall_clock_ms())
                if part.end_offset <= part.first_dirty_offset:
                    # It was truncated while it waited.
                    break
                outcome = await self._clean_once(process, replica, part)
                if outcome is None:
                    break
                await self._checkpoint.run(directory, monotonic_ms())
                if outcome.cleaned_up_to >= part.end_offset:
                    break
        except (CleaningFailedError, KafkaError, OSError, ValueError) as error:
            if replica in self._logs and not self._logs.is_stopping:
                self._failed(replica, self._schedules[directory], error)
                return
        self._schedules[directory].ended(topic_partition)

    async def _clean_once(
        self, process: CleanerProcess, replica: HostedReplica, part: Cleanable
    ) -> CleaningOutcome | None:
        """Run one round and apply its outcome; None if the log has changed too much."""
        cleaning = LogCleaning(replica.log)
        request, truncations = cleaning.request(
            part.first_dirty_offset, part.end_offset, self._limits, wall_clock_ms()
        )
        try:
            outcome = await process.run_in_thread(partial(process.clean, request))
        except CleaningFailedError:
            # A process that died has left unfinished files.
            unfinished = [segment.base_offset for segment in request.segments]
            await process.run_in_thread(partial(cleaning.remove_unwanted, unfinished))
            raise
        logger.info(
            "%s was cleaned from %d up to %d: %d keys, %d bytes read, %d written",
            replica.topic_partition,
            part.first_dirty_offset,
            outcome.cleaned_up_to,
            outcome.keys,
            outcome.bytes_read,
            outcome.bytes_written,
        )
        unwanted = list(outcome.groups)
        try:
            cleaned = [
                await process.run_in_thread(partial(cleaning.open_cleaned, group, request.now_ms))
                for group in outcome.groups
            ]
            is_taken = replica in self._logs and _may_change(replica)
            for group, segment in zip(outcome.groups, cleaned, strict=True) if is_taken else ():
                if cleaning.replace(group, segment, truncations, wall_clock_ms()):
                    unwanted.remove(group)
                elif not cleaning.is_gone(group):
                    # A later tombstone must not be dropped before the record that it deletes.
                    is_taken = False
                    break
            await process.run_in_thread(cleaning.rename_files)
        finally:
            if unwanted:
                bases = [group.base_offset for group in unwanted]
                await process.run_in_thread(partial(cleaning.remove_unwanted, bases))
        if not is_taken:
            return None
        cleaning.note_cleaned(outcome.cleaned_up_to, truncations)
        return outcome

    def _failed(self, replica: HostedReplica, schedule: CleanerSchedule, error: Exception) -> None:
        aside = schedule.failed(replica.topic_partition, str(error), monotonic_ms())
        logger.warning(
            "%s cannot be cleaned, and is tried again in %d s: %s",
            replica.topic_partition,
            (aside.retry_ms - monotonic_ms()) // 1000,
            error,
        )
        cause = system_error(error)
        if is_disk_error(error) and (cause is None or cause.errno not in NO_SPACE):
            replica.fail_if_storage(error)


def _count(config: BrokerConfig) -> int:
    return config.log_cleaner_threads if config.log_cleaner_enable else 0


def _limits(config: BrokerConfig) -> CleaningLimits:
    share = max(config.log_cleaner_threads, 1)
    max_bytes_a_second = config.log_cleaner_io_max_bytes_per_second
    return CleaningLimits(
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size // share,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        max_bytes_a_second=max_bytes_a_second / share if max_bytes_a_second < sys.float_info.max else None,
        window_bytes=max(config.log_cleaner_io_buffer_size // share, HEADER_BYTES),
        max_decompressed_bytes=config.message_max_decompressed_bytes,
    )


def _has_something(replica: HostedReplica) -> bool:
    """Whether a log is compacted, and has more than its active segment."""
    log = replica.log
    return log.config.compacts and len(log.segments.all) > 1 and log.loading is None and _may_change(replica)


def _may_change(replica: HostedReplica) -> bool:
    """Whether the log is not being copied to another directory: a copy must be as clean as the log."""
    return replica.future is None


def _write_out(replica: HostedReplica) -> None:
    """Flush the log and rename the files of earlier cleanings.

    The next cleaning finds files by their final names. And unflushed segments must not pass for flushed ones
    because their successor, not yet in place, was flushed.
    """
    LogCleaning(replica.log).rename_files()
    replica.log.flush_rolled()


def _load_first_timestamps(replica: HostedReplica) -> None:
    for segment in replica.log.segments.all[:-1]:
        segment.first_timestamp()


def _facts(replica: HostedReplica, copied_to: Offset | None) -> LogFacts:
    """Return the facts of a log; `copied_to` bounds what may be cleaned, None does not."""
    log = replica.log
    last_stable_offset = log.last_stable_offset(replica.high_watermark)
    config = log.config
    *sealed, active = log.segments.all
    return LogFacts(
        replica.topic_partition,
        [
            SegmentFacts(
                segment.base_offset,
                segment.size_bytes,
                segment.first_timestamp_ms,
                segment.largest_timestamp() if config.min_compaction_lag_ms else segment.max_timestamp_ms,
            )
            for segment in sealed
        ],
        active.base_offset,
        log.local_log_start_offset,
        log.log_end_offset,
        last_stable_offset if copied_to is None else min(last_stable_offset, copied_to),
        log.cleaned_offset,
        config.min_cleanable_dirty_ratio,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
    )
