"""Flushing logs beside the loop: what has rolled, and what flush.messages and flush.ms ask for.

A segment that is written to no more is fsynced soon after it rolled, so that recovery begins at the active
one: a start after a crash reads that much of a log, and not all of it (Kafka's "flush-log", UnifiedLog.roll).

Rules kept: nobody who appends waits for a flush, what makes a record safe is its replicas. Nothing is queued:
what is due is looked for anew, and can be read off a log at any time, so a disk that is too slow is behind
with its recovery points and with nothing else. One log of a directory is flushed at a time, in turn; a slow
directory does not hold up another.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final
from weakref import WeakKeyDictionary

from executor.partitions.replica import Replica
from executor.partitions.table import PartitionTable
from executor.process.slices import in_slices
from sparklog.errors import KafkaError
from sparklog.storage.log import Log
from sparklog.storage.log_directory import LogDirectory

__all__ = ["LogFlushes"]

_LOOK_INTERVAL_MS: Final = 1000


class LogFlushes:
    """The flushes of one broker's logs."""

    def __init__(
        self,
        replicas: PartitionTable,
        directory_of: Callable[[Log], LogDirectory],
        by_time_interval_ms: int,
        executor: Executor,
    ) -> None:
        """`by_time_interval_ms` is how often logs are looked for that are due by flush.ms."""
        self._replicas = replicas
        self._directory_of = directory_of
        self._by_time_interval_ms = by_time_interval_ms
        self._look_interval_ms = min(_LOOK_INTERVAL_MS, by_time_interval_ms)
        self._executor = executor
        self._look_due_ms = self._by_time_due_ms = 0
        self._flushed_ms: WeakKeyDictionary[Replica, int] = WeakKeyDictionary()
        """When logs were last flushed, or first seen with something to flush by flush.ms."""
        self._running: dict[LogDirectory, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self, now_ms: int) -> None:
        """Count the intervals from now on."""
        self._look_due_ms = now_ms
        self._by_time_due_ms = now_ms + self._by_time_interval_ms

    def tick(self, now_ms: int) -> None:
        """Begin to flush what is due, in the directories where the last flushes have ended."""
        if now_ms < self._look_due_ms or self._stopping or (self._looking and not self._looking.done()):
            return
        self._look_due_ms = now_ms + self._look_interval_ms
        by_time = now_ms >= self._by_time_due_ms
        if by_time:
            self._by_time_due_ms = now_ms + self._by_time_interval_ms
        self._looking = asyncio.get_running_loop().create_task(self._look(now_ms, by_time=by_time))

    async def stop(self) -> None:
        """Begin no other flush, and wait for those under way."""
        self._stopping = True
        if self._looking is not None:
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _look(self, now_ms: int, *, by_time: bool) -> None:
        """Look for what is due, and begin with it."""
        due: dict[LogDirectory, list[tuple[Replica, Callable[[], None]]]] = {}
        async for part in in_slices(self._replicas):
            for replica in part:
                flush = None if replica.offline else self._due(replica, now_ms, by_time=by_time)
                if flush is not None:
                    directory = self._directory_of(replica.log)
                    if directory not in self._running:
                        self._flushed_ms[replica] = now_ms
                        due.setdefault(directory, []).append((replica, flush))
        loop = asyncio.get_running_loop()
        for directory, flushes in due.items():
            self._running[directory] = loop.create_task(self._flush(directory, flushes))

    def _due(self, replica: Replica, now_ms: int, *, by_time: bool) -> Callable[[], None] | None:
        log, flush_ms = replica.log, replica.settings.flush_ms
        if log.recovery_point >= log.log_end_offset:
            return None
        if log.flush_due:
            return log.flush
        if flush_ms is not None:
            unflushed_ms = now_ms - self._flushed_ms.setdefault(replica, now_ms)
            if by_time and unflushed_ms >= flush_ms:
                return log.flush
        return log.flush_rolled if log.has_rolled else None

    async def _flush(
        self, directory: LogDirectory, flushes: Sequence[tuple[Replica, Callable[[], None]]]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            for replica, flush in flushes:
                if self._stopping or replica not in self._replicas or replica.offline:
                    continue
                try:
                    await loop.run_in_executor(self._executor, flush)
                except (KafkaError, OSError) as error:
                    replica.fail_if_storage(error)
        finally:
            del self._running[directory]
