"""The moves of one broker's replicas between its directories: who asks for them, and what ends them.

A move begins with AlterReplicaLogDirs, or goes on where a copy was found at the start. It ends when the copy
has taken the log's place, with another request, with the replica, and with either directory. A move is
nobody's but this broker's: the controller hears of it when it is about to end (KIP-858).

Rules kept: a replica has one copy at most, in another directory than its log; while there is one, nobody
cleans the log. Copies that are given up are deleted, unless their directory has failed, or the log has: of
that the copy may be all that is left, and the next start looks at it (`LogStore.open`).

Source: Kafka's ReplicaManager.alterReplicaLogDirs and ReplicaAlterLogDirsManager; KIP-113.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executor.moving.directory_copying import CopyServices, DirectoryCopying
from sparklog.executor.partitions.future_replica import FutureReplica
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.image import MetadataImage
from sparklog.metrics import server
from sparklog.metrics.names import Kind
from sparklog.metrics.registry import Sample
from sparklog.storage.files import FUTURE_SUFFIX, LONGEST_NAME_BYTES
from sparklog.storage.log import Log
from sparklog.storage.log_directory import LogDirectory
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

_UNIQUE_CHARACTERS: Final = len(UUID(int=0).hex)
_CLIENT_ID: Final = "ReplicaAlterLogDirs"


class DirectoryMoves(RoleListener[Replica]):
    """The moves under way."""

    def __init__(self, services: CopyServices) -> None:
        self._services = services
        self._moves: dict[Replica, DirectoryCopying] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning = asyncio.Lock()
        self._stopped = False

    def wanted(self, topic_partition: TopicPartition, path: str) -> tuple[Replica, LogDirectory] | None:
        """Return what `move` is to be asked for, to have a replica lie in the directory at `path`.

        None where nothing need be done. Of a replica that is not here yet it is remembered.

        Raises:
            KafkaError: invalid_topic_exception, log_dir_not_found, kafka_storage_error or
                replica_not_available.
        """
        store = self._services.store
        name = f"{topic_partition}.{FUTURE_SUFFIX}"
        if len(name.encode()) + _UNIQUE_CHARACTERS > LONGEST_NAME_BYTES:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"the name of {topic_partition} is too long")
        directory = next((each for each in store.directories if str(each.path) == path), None)
        if directory is None:
            raise KafkaError(ErrorCode.log_dir_not_found, f"{path} is no directory of this broker's log.dirs")
        if directory.failure is not None:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{path} is offline")
        replica = self._replica(topic_partition, directory)
        if replica.offline:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{replica} is offline")
        if replica not in self._moves and store.directory_of(replica.log) is directory:
            return None
        return replica, directory

    def _replica(self, topic_partition: TopicPartition, directory: LogDirectory) -> Replica:
        table, store = self._services.table, self._services.store
        try:
            return table.find(*topic_partition)
        except KafkaError as error:
            if table.registration(*topic_partition) is not None:
                store.prefer(topic_partition, directory)
            raise KafkaError(
                ErrorCode.replica_not_available, f"{topic_partition} is not on this broker"
            ) from error

    async def move(self, replica: Replica, directory: LogDirectory) -> None:
        """Have a replica lie in that directory; returns when its copying has begun.

        Nothing is done for one that lies there, but that its move elsewhere ends.

        Raises:
            KafkaError: kafka_storage_error, replica_not_available.
        """
        async with self._beginning:
            await self._move(replica, directory)

    async def _move(self, replica: Replica, directory: LogDirectory) -> None:
        store = self._services.store
        under_way = self._moves.get(replica)
        if under_way is not None:
            if under_way.target is directory:
                return
            logger.info("%s: the move to %s is called off", replica, under_way.target.path)
            self._give_up(replica)
        if store.directory_of(replica.log) is directory:
            return
        if len(store.online) < len(store.directories):
            # As in Kafka: the one that is offline may have a copy of it.
            raise KafkaError(ErrorCode.kafka_storage_error, "another directory of this broker is offline")
        future = await store.create_future(replica.log, directory)
        if self._stopped or replica not in self._services.table or replica.offline:
            await store.delete(future)
            raise KafkaError(ErrorCode.replica_not_available, f"{replica} has gone meanwhile")
        logger.info("%s: moving from %s to %s", replica, replica.log.parent, directory.path)
        self._begin(replica, future)

    def _begin(self, replica: Replica, future: Log) -> None:
        replica.future = FutureReplica(replica, future)
        copying = DirectoryCopying(replica, replica.future, self._services)
        self._moves[replica] = copying
        task = asyncio.get_running_loop().create_task(self._run(replica, copying))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, replica: Replica, copying: DirectoryCopying) -> None:
        try:
            await copying.run()
        except Exception:
            # A mistake: the replica goes on with the log it has, and so does everything else.
            logger.exception("%s: its move to %s has failed", replica, copying.target.path)
        finally:
            # What `stop` has halted is under way still, for the caller to close and the next start to go on.
            if not self._stopped and self._moves.get(replica) is copying:
                self._end(replica)

    # --- what ends a move ------------------------------------------------------------------------

    def _end(self, replica: Replica) -> DirectoryCopying | None:
        copying = self._moves.pop(replica, None)
        if copying is not None:
            if replica.future is copying.future:
                replica.future = None
            self._services.reports.stays(replica.key)
            registration = self._services.table.image.topics.partition(*replica.key)
            if registration is not None and replica in self._services.table:
                self._services.reports.image_changed(replica.key, registration)
        return copying

    def _give_up(self, replica: Replica) -> None:
        """End the move of a replica, and delete the copy."""
        copying = self._end(replica)
        if copying is not None:
            copying.cancel(delete=True)

    def became_leader(self, replica: Replica) -> None:
        """Go on with the move that was under way when this broker was stopped."""
        self._resume(replica)

    def became_follower(self, replica: Replica) -> None:
        """Go on with the move that was under way when this broker was stopped."""
        self._resume(replica)

    def _resume(self, replica: Replica) -> None:
        future = self._services.store.claim_future(replica.log)
        if future is not None:
            logger.info("%s: going on to move it from %s to %s", replica, replica.log.parent, future.parent)
            self._begin(replica, future)

    def stopped(self, replica: Replica) -> None:
        """Its log failed: what was copied stays where it is."""
        if replica.offline:
            copying = self._end(replica)
            if copying is not None:
                copying.cancel(delete=False)

    def deleted(self, replica: Replica) -> None:
        """It is no longer this broker's."""
        self._give_up(replica)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Nothing can be copied into that directory any more."""
        for replica, copying in list(self._moves.items()):
            if copying.target is directory:
                self._end(replica)
                copying.cancel(delete=False)

    # --- others ----------------------------------------------------------------------------------

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Look again at the moves that wait for the metadata."""
        for replica, copying in list(self._moves.items()):
            if replica.topic_partition.partition in delta.changed_topics.get(replica.topic_id, ()):
                copying.wake()

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield what there is to tell; a source of a registry."""
        lag = max((copying.future.lag for copying in self._moves.values()), default=0)
        yield Sample(server.ALTER_LOG_DIRS_MAX_LAG.of(clientId=_CLIENT_ID), Kind.GAUGE, lag)

    async def stop(self) -> None:
        """Copy nothing more. The copies are left for the caller to close, and the next start goes on."""
        self._stopped = True
        for copying in self._moves.values():
            copying.halt()
        await asyncio.gather(*self._tasks)

    @property
    def copies(self) -> list[Log]:
        """The logs that are being copied into; those that have become their replicas' logs are not."""
        return [
            copying.future.log for replica, copying in self._moves.items() if replica.future is copying.future
        ]
