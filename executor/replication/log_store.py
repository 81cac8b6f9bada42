"""The logs of this broker over its directories: loading, creating, deleting, setting strays aside.

Everything here that touches files runs beside the event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from uuid import UUID

from sparklog.storage.log import Log
from sparklog.storage.log_config import LogConfig
from sparklog.storage.log_directory import LogDirectory
from sparklog.types import Offset, TopicPartition

logger = logging.getLogger(__name__)


class LogStore:
    """Where the logs of this broker lie."""

    def __init__(self, directories: Sequence[LogDirectory], executor: Executor) -> None:
        self.directories = directories
        self._executor = executor
        self._loaded: dict[TopicPartition, Log] = {}
        """Loaded from disk and not asked for yet."""
        self._high_watermarks: dict[TopicPartition, Offset] = {}
        self._places: dict[Log, LogDirectory] = {}

    async def load(self, config_for: Callable[[str], LogConfig], threads_per_directory: int) -> None:
        """Open every log of every directory, recovering what an unclean stop left."""
        loop = asyncio.get_running_loop()
        loaded = await asyncio.gather(
            *(
                loop.run_in_executor(self._executor, _load, directory, config_for, threads_per_directory)
                for directory in self.directories
            )
        )
        for directory, (logs, high_watermarks) in zip(self.directories, loaded, strict=True):
            self._loaded.update(logs)
            self._high_watermarks.update(high_watermarks)
            self._places.update(dict.fromkeys(logs.values(), directory))

    async def open(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig
    ) -> tuple[Log, Offset]:
        """Return the log of a partition and its last known high watermark, creating it where there is none.

        A log of an older topic of that name is set aside first.

        Raises:
            KafkaError: kafka_storage_error.
        """
        log = self._loaded.pop(topic_partition, None)
        if log is not None and log.topic_id in (topic_id, None):
            log.reconfigure(config)
            return log, self._high_watermarks.pop(topic_partition, 0)
        if log is not None:
            await self._set_aside([log])
        directory = self._least_used()
        log = await asyncio.get_running_loop().run_in_executor(
            self._executor,
            directory.create_log,
            topic_partition.topic,
            topic_partition.partition,
            topic_id,
            config,
            _wall_ms(),
        )
        self._places[log] = directory
        return log, 0

    async def delete(self, log: Log) -> None:
        """Delete a log; its files go after `file.delete.delay.ms`."""
        directory = self._places.pop(log)
        await asyncio.get_running_loop().run_in_executor(
            self._executor, directory.delete_log, log, _wall_ms()
        )

    async def set_strays_aside(self) -> None:
        """Rename the logs that were loaded and that no image has asked for."""
        strays, self._loaded = list(self._loaded.values()), {}
        self._high_watermarks.clear()
        await self._set_aside(strays)

    async def close_unclaimed(self) -> list[TopicPartition]:
        """Flush and close the logs that no image has asked for yet; return those that are not on disk."""
        unclaimed, self._loaded = self._loaded, {}
        loop = asyncio.get_running_loop()
        results = await asyncio.gather(
            *(loop.run_in_executor(self._executor, log.close) for log in unclaimed.values()),
            return_exceptions=True,
        )
        failed = []
        for topic_partition, error in zip(unclaimed, results, strict=True):
            if error is not None:
                logger.error("%s: not closed cleanly: %s", topic_partition, error)
                failed.append(topic_partition)
        return failed

    def directory_of(self, log: Log) -> LogDirectory:
        """Return the directory a log lies in."""
        return self._places[log]

    async def _set_aside(self, logs: Iterable[Log]) -> None:
        loop = asyncio.get_running_loop()
        for log in logs:
            directory = self._places.pop(log)
            path = await loop.run_in_executor(self._executor, directory.remove_stray, log, _wall_ms())
            logger.warning("%s is not this broker's: removed, by way of %s", log.topic_partition, path)

    def _least_used(self) -> LogDirectory:
        if len(self.directories) == 1:
            return self.directories[0]
        used = {id(directory): 0 for directory in self.directories}
        for directory in self._places.values():
            used[id(directory)] += 1
        return min(self.directories, key=lambda directory: used[id(directory)])


def _load(
    directory: LogDirectory, config_for: Callable[[str], LogConfig], threads: int
) -> tuple[dict[TopicPartition, Log], dict[TopicPartition, Offset]]:
    logs = directory.load_all(config_for, _wall_ms(), threads=threads)
    return logs, directory.read_high_watermarks()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
