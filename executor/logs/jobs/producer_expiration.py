"""Forgets producers that have been idle for long (Kafka's "PeriodicProducerExpirationCheck")."""

import asyncio

from sparklog.executor.logs.jobs.job import HostedLogs
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.storage.directory.log_directory import LogDirectory


class ProducerExpirationJob:
    name = "producer-expiration-check"
    is_due_at_start = False

    def __init__(self, logs: HostedLogs, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self._logs = logs

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        wall_ms = wall_clock_ms()
        async for part in self._logs.on(directory):
            for replica in part:
                for _ in replica.log.remove_expired_producers(wall_ms):
                    await asyncio.sleep(0)
