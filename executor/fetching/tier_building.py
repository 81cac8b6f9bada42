"""Logs of followers that begin at the end of their tiers, because their leaders have the rest there alone.

Once the follower's machine wants it (`AskLeaderOffsets`): the leader is asked for its offsets, the manifest
and the producers are read from the object store, and the log begins again there (`Replica.build_from_tier`).
Nothing is fetched for the replica meanwhile. An attempt that fails is followed by the fetcher's pause, and so
is one whose result did not help: a log that was built and must be built again, before anything was fetched.

Source: KIP-405, KIP-1023; Kafka's TierStateMachine.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID
from weakref import WeakKeyDictionary

from sparklog.executor.fetching.leader_offsets import LeaderOffsets, LedPartition
from sparklog.executor.partitions.following import Following
from sparklog.executor.partitions.machine.follower import LeaderOffsetsKnown
from sparklog.executor.partitions.replica import Replica
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.object_store import StoreError
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)

FLUSHES_AT_A_TIME: Final = 16
"""They wait for the disk, which syncs many files at once about as fast as one."""


class TierState(NamedTuple):
    """The state with which a log goes on at the end of its tier."""

    manifest: Manifest
    producers: bytes | None
    """The content of the producer snapshot that the manifest names; None if it names none."""


TierReader: TypeAlias = Callable[[UUID, int], Awaitable[TierState]]
"""Reads the state of a topic id's partition; raises StoreError, or KafkaError for one that is unusable."""


class TierBuilding:
    def __init__(self, offsets: LeaderOffsets, on_ended: Callable[[Replica, bool], None]) -> None:
        """`on_ended` is called with each replica that may be fetched for again, and whether it was built."""
        self.read_tier: TierReader | None = None
        """None for a broker without an object store; set before the first image."""
        self.built_count = self.failed_count = 0
        self._offsets = offsets
        self._on_ended = on_ended
        self._flushes = ThreadPoolExecutor(FLUSHES_AT_A_TIME, "sparklog-tier-building")
        self._tasks: dict[asyncio.Task[None], Replica] = {}
        self._built_ends: WeakKeyDictionary[Following, Offset] = WeakKeyDictionary()
        """Where the last attempt of a follower has let its log begin."""

    def start(self, replica: Replica) -> None:
        """Build the log of a follower whose machine has asked for it."""
        task = asyncio.get_running_loop().create_task(self._run(replica))
        self._tasks[task] = replica
        task.add_done_callback(self._tasks.pop)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._offsets.stop()
        self._flushes.shutdown(wait=False)

    async def _run(self, replica: Replica) -> None:
        following = replica.follower_state
        if following is None or following.leader_id is None:
            return
        succeeded = False
        try:
            succeeded = await self._build(replica, following, following.leader_id)
        except Exception as error:
            self.failed_count += 1
            following.tier_failed(
                error.error_code if isinstance(error, KafkaError) else ErrorCode.kafka_storage_error
            )
            is_expected = isinstance(error, KafkaError | StoreError | OSError)
            if not replica.offline:
                logger.warning(
                    "%s: the log cannot begin at its tier's end yet: %s",
                    replica,
                    error,
                    exc_info=None if is_expected else error,
                )
        if replica.follower_state is following:
            self._on_ended(replica, succeeded)

    async def _build(self, replica: Replica, following: Following, leader_id: int) -> bool:
        """Return whether the log is another one than after the last attempt."""
        assert replica.leader_epoch is not None, "a follower has one"
        led = LedPartition(replica.topic_partition, replica.leader_epoch)
        known = LeaderOffsetsKnown(*await self._offsets.local_start_and_tiered_end(leader_id, led))
        wanted = replica.leader_offsets_known(following, known)
        if wanted is None:
            return True
        if self.read_tier is None:
            raise KafkaError(
                ErrorCode.kafka_storage_error, "this broker has no object store (sparklog.remote.uri)"
            )
        manifest, producers = await self.read_tier(*replica.key)
        replica.build_from_tier(following, wanted, manifest, producers, wall_clock_ms())
        self.built_count += 1
        has_moved = self._built_ends.get(following) != manifest.end_offset
        self._built_ends[following] = manifest.end_offset
        # Before it counts as a replica: after a power cut no batch says where the log begins.
        try:
            await asyncio.get_running_loop().run_in_executor(self._flushes, replica.log.flush)
        except KafkaError as error:
            replica.fail_if_storage(error)
            raise
        return has_moved
