"""Runs the jobs of log maintenance at the times of `upkeep_schedule`.

Each run is a task of its own, of one job on one directory. A run that takes long or fails delays the next one
of its own job and directory only.
"""

import asyncio
import logging
from collections.abc import Sequence

from sparklog.executor.logs.jobs.job import UpkeepJob
from sparklog.executor.logs.machine.upkeep_schedule import UpkeepSchedule
from sparklog.node.storage.directory.log_directory import LogDirectory

logger = logging.getLogger(__name__)


class UpkeepScheduler:
    """The jobs over the directories of one broker."""

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
