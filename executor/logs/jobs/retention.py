"""Retention: segments leave a log by age, by its size and by its start (Kafka's "kafka-log-retention").

It decides on the loop, for it changes logs; their files go by `file_deletion`.
"""

from executor.logs.jobs.job import HostedLogs, HostedReplica
from sparklog.clocks import wall_clock_ms
from sparklog.errors import KafkaError
from sparklog.storage.log_directory import LogDirectory

__all__ = ["RetentionJob"]


class RetentionJob:
    """Drops old segments."""

    name = "log-retention"
    is_due_at_start = False

    def __init__(self, logs: HostedLogs, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self._logs = logs

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        """Drop what the topics' retention lets go."""
        wall_ms = wall_clock_ms()
        async for part in self._logs.on(directory):
            for replica in part:
                if replica in self._logs:
                    _let_go_of_old(replica, wall_ms)


def _let_go_of_old(replica: HostedReplica, wall_ms: int) -> None:
    start_before = replica.log.log_start_offset
    try:
        replica.log.delete_old_segments(wall_ms, replica.high_watermark)
    except (KafkaError, OSError) as error:
        replica.fail_if_storage(error)
        return
    if replica.log.log_start_offset != start_before:
        replica.log_start_offset_moved()
