"""Topic ids of followers' new logs, fsynced before the first records that a leader sends.

The log's first append would do it on the event loop (`Log.sync_identity`). Nothing is fetched for the replica
meanwhile, and the records that had come are fetched again.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from sparklog.executor.partitions.replica import Replica
from sparklog.protocol.errors import KafkaError

logger = logging.getLogger(__name__)


class TopicIdSyncs:
    def __init__(self, executor: Executor, on_ended: Callable[[Replica, bool], None]) -> None:
        """`on_ended` is called with each replica that may be fetched for again, and whether it has synced."""
        self._on_ended = on_ended
        self._executor = executor
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, replica: Replica) -> None:
        task = asyncio.get_running_loop().create_task(self._sync(replica))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel; a thread that waits for the disk goes on until it has synced."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _sync(self, replica: Replica) -> None:
        following, succeeded = replica.follower_state, False
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, replica.log.sync_identity)
        except Exception as error:  # the replica must not be held for ever
            if isinstance(error, KafkaError):
                replica.fail_if_storage(error)
            else:
                logger.exception("%s: the topic id is not on the disk yet", replica)
        else:
            succeeded = True
        if replica.follower_state is following:
            self._on_ended(replica, succeeded)
