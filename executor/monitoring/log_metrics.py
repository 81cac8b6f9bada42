"""The sizes of logs and the free space of disks, read periodically because that takes time.

Every partition is looked at, in slices, and disks are asked by a thread: one that hangs holds up nothing but
its own figure. Samples are those found last. The partitions with the largest logs are reported,
`REPORTED_PARTITIONS` at most; Kafka reports all, which here would be most of a broker's metrics.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final

from sparklog.executor.logs.log_store import LogStore
from sparklog.executor.loop.slices import in_slices
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.metrics import storage
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample
from sparklog.node.storage.directory.log_directory import LogDirectory

INTERVAL_S: Final = 5.0
REPORTED_PARTITIONS: Final = 100


class LogMetrics:
    """A source of the registry; `run` keeps it up to date."""

    def __init__(self, table: PartitionTable, store: LogStore) -> None:
        self._table = table
        self._store = store
        self._other_log_bytes: dict[LogDirectory, int] = {}
        """The bytes of the logs that are not reported one by one."""
        self._free_bytes: dict[LogDirectory, int] = {}
        self._reported: tuple[Replica, ...] = ()

    async def run(self) -> None:
        """Read sizes periodically, until cancelled."""
        asking: dict[LogDirectory, asyncio.Future[tuple[int, int] | None]] = {}
        while True:
            for directory in self._store.directories:
                if directory.failure is not None:
                    continue
                asked = self._store.ask_volume(directory)
                if asked is not asking.get(directory):
                    asking[directory] = asked
                    asked.add_done_callback(
                        lambda asked, directory=directory: self._asked(directory, asked)  # type: ignore[misc]
                    )
            await self._look()
            await asyncio.sleep(INTERVAL_S)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        directories = self._store.directories
        reported = [each for each in self._reported if not each.offline and each in self._table]
        # Without those that have left since: each is in the sum as long as it is in the list.
        log_bytes = Counter(self._other_log_bytes)
        for replica in reported:
            log_bytes[self._store.directory_of(replica.log)] += replica.log.size_bytes
        offline = sum(directory.failure is not None for directory in directories)
        yield Sample(storage.OFFLINE_DIRECTORIES.of(), Kind.GAUGE, offline)
        for directory in directories:
            tags = {"logDirectory": str(directory.path)}
            failed = directory.failure is not None
            yield Sample(storage.DIRECTORY_OFFLINE.of(**tags), Kind.GAUGE, int(failed))
            if failed:
                continue
            if directory in self._other_log_bytes:
                yield Sample(storage.DIRECTORY_LOGS.of(**tags), Kind.GAUGE, log_bytes[directory])
            yield Sample(storage.DIRECTORY_FILE_SYSTEM.of(**tags), Kind.GAUGE, directory.file_system_id)
            if directory in self._free_bytes:
                yield Sample(storage.DIRECTORY_FREE.of(**tags), Kind.GAUGE, self._free_bytes[directory])
        for replica in reported:
            topic, partition = replica.topic_partition
            tags, log = {"topic": topic, "partition": str(partition)}, replica.log
            yield Sample(storage.LOG_SIZE.of(**tags), Kind.GAUGE, log.size_bytes)
            yield Sample(storage.LOG_SEGMENTS.of(**tags), Kind.GAUGE, len(log.segments.all))
            yield Sample(storage.LOG_START_OFFSET.of(**tags), Kind.GAUGE, log.log_start_offset)
            yield Sample(storage.LOG_END_OFFSET.of(**tags), Kind.GAUGE, log.log_end_offset)

    def _asked(self, directory: LogDirectory, asked: "asyncio.Future[tuple[int, int] | None]") -> None:
        if not asked.cancelled() and (volume := asked.result()) is not None:
            _, self._free_bytes[directory] = volume

    async def _look(self) -> None:
        by_directory = dict.fromkeys(self._store.directories, 0)
        sizes: list[tuple[int, LogDirectory, Replica]] = []
        async for part in in_slices(self._table):
            for replica in part:
                size_bytes, directory = replica.log.size_bytes, self._store.directory_of(replica.log)
                sizes.append((size_bytes, directory, replica))
                by_directory[directory] += size_bytes
        largest = heapq.nlargest(REPORTED_PARTITIONS, sizes, key=lambda sized: sized[0])
        for size_bytes, directory, _ in largest:
            by_directory[directory] -= size_bytes
        self._other_log_bytes = by_directory
        self._reported = tuple(replica for *_, replica in largest)
