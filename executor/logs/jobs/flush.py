"""Flushes logs: closed segments, new logs, and those that flush.messages and flush.ms call for.

A closed segment is fsynced soon after the roll, so that recovery begins at the active one: a start after a
crash reads that much of a log, and not all of it (Kafka's "flush-log", UnifiedLog.roll, and
"kafka-log-flusher").

Rules kept: no append waits for a flush; replicas make a record safe. There is no queue: each run looks at the
logs themselves, so a slow disk delays recovery points and nothing else. One log of a directory is flushed at
a time, in turn.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from sparklog.executor.logs.jobs.job import HostedLogs, HostedReplica
from sparklog.node.metrics.histogram import Histogram
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.protocol.errors import KafkaError

_LOOK_INTERVAL_MS: Final = 1000


class FlushJob:
    name = "flush-log"
    is_due_at_start = True

    def __init__(self, logs: HostedLogs, by_time_interval_ms: int, flush_times: Histogram) -> None:
        """`by_time_interval_ms` is the interval of checks for flush.ms."""
        self._flush_times = flush_times
        self.interval_ms = min(_LOOK_INTERVAL_MS, by_time_interval_ms)
        self._by_time_interval_ms = by_time_interval_ms
        self._logs = logs
        self._by_time_due_ms: dict[LogDirectory, int] = {}
        self._flushed_ms: WeakKeyDictionary[HostedReplica, int] = WeakKeyDictionary()
        """The time of each log's last flush, or when unflushed records under flush.ms were first seen."""

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        by_time = now_ms >= self._by_time_due_ms.setdefault(directory, now_ms + self._by_time_interval_ms)
        if by_time:
            self._by_time_due_ms[directory] = now_ms + self._by_time_interval_ms
        due: list[tuple[HostedReplica, Callable[[], None]]] = []
        async for part in self._logs.on(directory):
            for replica in part:
                flush = self._due(replica, now_ms, by_time=by_time)
                if flush is not None:
                    self._flushed_ms[replica] = now_ms
                    due.append((replica, flush))
        for replica, flush in due:
            if replica in self._logs and not self._logs.is_stopping:
                try:
                    self._flush_times.record(await self._logs.run_in_thread(partial(_timed, flush)))
                except (KafkaError, OSError) as error:
                    replica.fail_if_storage(error)

    def _due(self, replica: HostedReplica, now_ms: int, *, by_time: bool) -> Callable[[], None] | None:
        log, flush_ms = replica.log, replica.settings.flush_ms
        if log.is_new:
            return log.flush_rolled
        if log.recovery_point >= log.log_end_offset:
            return None
        if log.flush_due:
            return log.flush
        if flush_ms is not None:
            unflushed_ms = now_ms - self._flushed_ms.setdefault(replica, now_ms)
            if by_time and unflushed_ms >= flush_ms:
                return log.flush
        return log.flush_rolled if log.has_rolled else None


def _timed(flush: Callable[[], None]) -> float:
    """Flush; return the seconds it took."""
    began_s = time.perf_counter()
    flush()
    return time.perf_counter() - began_s
