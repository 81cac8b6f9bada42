"""Deletion of the files of segments and logs, `file.delete.delay.ms` after their removal.

Kafka's "delete-file" and "kafka-delete-logs". Dropped segments get their `.deleted` names here too.
"""

import logging
from functools import partial

from sparklog.executor.logs.jobs.job import HostedLogs, HostedReplica
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.protocol.errors import KafkaError

logger = logging.getLogger(__name__)


class FileDeletionJob:
    """Renames and unlinks the files of dropped segments and deleted logs."""

    name = "delete-file"
    is_due_at_start = False

    def __init__(self, logs: HostedLogs, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self._logs = logs

    async def run(self, directory: LogDirectory, now_ms: int) -> None:
        wall_ms = wall_clock_ms()
        due: list[HostedReplica] = []
        async for part in self._logs.on(directory):
            due += [replica for replica in part if replica.log.segments.has_files_due(wall_ms)]
        for replica in due:
            try:
                await self._logs.run_in_thread(partial(replica.log.delete_files_due, wall_ms))
            except (KafkaError, OSError) as error:
                replica.fail_if_storage(error)
        if directory.has_directories_due(wall_ms):
            try:
                await self._logs.run_in_thread(partial(directory.remove_directories_due, wall_ms))
            except (KafkaError, OSError) as error:
                logger.warning("%s: deleted logs were not removed: %s", directory.path, error)
