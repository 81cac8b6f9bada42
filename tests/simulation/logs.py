"""The logs of a broker's process: what its disk has, opened as `Roles` asks for them. Nothing waits here."""

from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any
from uuid import UUID

from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.types import Offset, TopicIdPartition, TopicPartition
from tests.simulation.disk import Disk, MemoryLog


class DiskLogs:
    """The `PartitionLogs` of one process."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._opened: set[TopicIdPartition] = set()
        self._work: list[Coroutine[Any, Any, None]] = []

    @property
    def online_ids(self) -> tuple[UUID, ...]:
        return (self._disk.directory_id,)

    def directory_id_of(self, log: Any) -> UUID:
        return self._disk.directory_id

    def begin(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        assigned_directory: UUID | None,
    ) -> Any | None:
        disk, key = self._disk, TopicIdPartition(topic_id, topic_partition.partition)
        if self._work or key in disk.logs:
            return None
        disk.high_watermarks.pop(key, None)
        log = disk.logs[key] = MemoryLog(disk, topic_partition, topic_id)
        self._opened.add(key)
        return log

    async def open(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        assigned_directory: UUID | None,
    ) -> tuple[Any, Offset]:
        disk, key = self._disk, TopicIdPartition(topic_id, topic_partition.partition)
        log = disk.logs.get(key)
        if log is None:
            log = disk.logs[key] = MemoryLog(disk, topic_partition, topic_id)
        else:
            # All that the process before this one knew beside the batches is gone.
            log.reload()
        self._opened.add(key)
        return log, disk.high_watermarks.get(key, 0)

    async def delete(self, log: Any) -> None:
        self._disk.drop(TopicIdPartition(log.topic_id, log.topic_partition.partition))

    def begin_work(self, work: Coroutine[Any, Any, None]) -> None:
        self._work.append(work)

    async def end_work(self, timeout_s: float | None) -> None:
        while self._work:
            await self._work.pop(0)

    async def remove_strays(self) -> None:
        for key in [key for key in self._disk.logs if key not in self._opened]:
            self._disk.drop(key)

    async def side_by_side(self, work: Iterable[Awaitable[None]]) -> None:
        for one in work:
            await one


def at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run to its end what waits for nothing but its turn."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        pass
