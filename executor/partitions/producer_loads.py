"""The rest of a truncation, in another thread: loading the log's producers and lowering its checkpoints.

One log of a directory at a time: after a failover many are cut at once, walking through batches is work for
the interpreter that the loop needs too, and a slow disk has only so much to give. A replica is fetched for
again when its log is done, and when the checkpoints of its recovery point and of its cleaning are not above
its new end: else recovery after a power failure would not check the records that replaced the truncated
ones, and the cleaner would skip them. A log that was truncated again, dropped or failed is skipped. A load
that the system refused (no descriptors, no memory) is tried again: the replica would serve nothing for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.node.storage.producers.producer_loading import LoadingCancelledError, ProducerLoading
from sparklog.protocol.errors import KafkaError

_RETRY_S: Final = 1.0


class ProducerLoads(RoleListener[Replica]):
    def __init__(
        self,
        replicas: PartitionTable,
        directory_of: Callable[[Log], LogDirectory],
        lower_checkpoints: Callable[[Replica], Awaitable[None]],
        on_loaded: Callable[[Replica], None],
        executor: Executor,
    ) -> None:
        """`lower_checkpoints` writes the checkpoints of a truncated log.

        `on_loaded` is called with each replica that may be fetched for again.
        """
        self._replicas = replicas
        self._directory_of = directory_of
        self._lower_checkpoints = lower_checkpoints
        self._on_loaded = on_loaded
        self._executor = executor
        self._turns: dict[LogDirectory, asyncio.Lock] = {}
        self._tasks: dict[asyncio.Task[None], Replica] = {}
        self._stopping = asyncio.Event()

    def start(self, replica: Replica) -> None:
        """Queue the load of a truncated log's producers."""
        task = asyncio.get_running_loop().create_task(self._load(replica))
        self._tasks[task] = replica
        task.add_done_callback(self._tasks.pop)

    def stopped(self, replica: Replica) -> None:
        """Cancel the load of a log that can no longer be used."""
        if replica.offline:
            self.deleted(replica)

    def deleted(self, replica: Replica) -> None:
        if replica.log.loading is not None:
            replica.log.loading.cancel()

    async def stop(self) -> None:
        """Cancel all loads; return when no thread reads a log any more."""
        self._stopping.set()
        for replica in self._tasks.values():
            self.deleted(replica)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self, replica: Replica) -> None:
        loading = replica.log.loading
        if loading is None:
            return
        producers = await self._loaded(replica, loading)
        while producers is None and self._is_wanted(replica, loading):
            await self._rest()
            producers = await self._loaded(replica, loading)
        if producers is None:
            return
        while self._is_wanted(replica, loading):
            await self._lower_checkpoints(replica)
            if not replica.log.is_checkpointed_too_high:
                break
            await self._rest()
        if self._is_wanted(replica, loading):
            replica.producers_loaded(loading, producers)
            self._on_loaded(replica)

    async def _loaded(self, replica: Replica, loading: ProducerLoading) -> ProducerStates | None:
        """Return the producers; None if they cannot be loaded, or not yet."""
        async with self._turns.setdefault(self._directory_of(replica.log), asyncio.Lock()):
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._executor, loading.run, wall_clock_ms()
                )
            except LoadingCancelledError:
                return None
            except (KafkaError, OSError) as error:
                if replica in self._replicas:
                    replica.fail_if_storage(error)
                return None

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._stopping.wait()

    def _is_wanted(self, replica: Replica, loading: ProducerLoading) -> bool:
        return (
            replica in self._replicas
            and not replica.offline
            and replica.log.loading is loading
            and not self._stopping.is_set()
        )
