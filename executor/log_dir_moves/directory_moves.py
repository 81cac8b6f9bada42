"""The moves of one broker's replicas between its directories.

AlterReplicaLogDirs begins a move, and a start continues it if it finds a copy. The move ends when the copy
has taken the log's place, with another request, with the replica, and with a failure of either directory. The
controller learns of it only when it is about to end (KIP-858).

Rules kept: a replica has one copy at most, in another directory than its log; a log with a copy is not
cleaned. Abandoned copies are deleted, unless their directory has failed, or that of the log: the copy may
then be the only one left, and the next start checks it (`LogStore.open`).

Source: Kafka's ReplicaManager.alterReplicaLogDirs and ReplicaAlterLogDirsManager; KIP-113.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from sparklog.executor.log_dir_moves.directory_copying import CopyServices, DirectoryCopying
from sparklog.executor.partitions.future_replica import FutureReplica
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.files import FUTURE_SUFFIX, LONGEST_NAME_BYTES
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition

logger = logging.getLogger(__name__)

_UNIQUE_CHARACTERS: Final = len(UUID(int=0).hex)
_CLIENT_ID: Final = "ReplicaAlterLogDirs"


class DirectoryMoves(RoleListener[Replica]):
    def __init__(self, services: CopyServices) -> None:
        self._services = services
        self._moves: dict[Replica, DirectoryCopying] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning = asyncio.Lock()
        self._stopped = False

    def wanted(self, topic_partition: TopicPartition, path: str) -> tuple[Replica, LogDirectory] | None:
        """Return the arguments of `move` for a replica to lie in the directory at `path`.

        None if it lies there already. The directory of a future replica is remembered.

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
            raise KafkaError(
                ErrorCode.log_dir_not_found, f"{path} is not a directory of this broker's log.dirs"
            )
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
        """Begin to move a replica into that directory.

        If it lies there, only a move elsewhere is ended.

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
            logger.info("%s: the move to %s is cancelled", replica, under_way.target.path)
            self._give_up(replica)
        if store.directory_of(replica.log) is directory:
            return
        if len(store.online) < len(store.directories):
            # As in Kafka: the offline directory may have a copy of it.
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
            # A programming error: the replica keeps its log, and other moves go on.
            logger.exception("%s: its move to %s has failed", replica, copying.target.path)
        finally:
            # Moves halted by `stop` stay: the caller closes their copies, and the next start continues them.
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
        copying = self._end(replica)
        if copying is not None:
            copying.cancel(delete=True)

    deleted = _give_up

    def _resume(self, replica: Replica) -> None:
        """Continue the move that a stop of the broker has interrupted."""
        future = self._services.store.claim_future(replica.log)
        if future is not None:
            logger.info("%s: continuing its move from %s to %s", replica, replica.log.parent, future.parent)
            self._begin(replica, future)

    became_leader = became_follower = _resume

    def stopped(self, replica: Replica) -> None:
        """End the move if the log has failed; the copy stays."""
        if replica.offline:
            copying = self._end(replica)
            if copying is not None:
                copying.cancel(delete=False)

    def directory_failed(self, directory: LogDirectory) -> None:
        for replica, copying in list(self._moves.items()):
            if copying.target is directory:
                self._end(replica)
                copying.cancel(delete=False)

    # --- others ----------------------------------------------------------------------------------

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Wake the moves that wait for the metadata."""
        for replica, copying in list(self._moves.items()):
            if replica.topic_partition.partition in delta.changed_topics.get(replica.topic_id, ()):
                copying.wake()

    def samples(self, now_ms: int) -> Iterator[Sample]:
        """Yield the largest lag of a copy; a source of a registry."""
        lag = max((copying.future.lag for copying in self._moves.values()), default=0)
        yield Sample(server.ALTER_LOG_DIRS_MAX_LAG.of(clientId=_CLIENT_ID), Kind.GAUGE, lag)

    async def stop(self) -> None:
        """Halt all moves. The caller closes the copies, and the next start continues the moves."""
        self._stopped = True
        for copying in self._moves.values():
            copying.halt()
        await asyncio.gather(*self._tasks)

    @property
    def copies(self) -> list[Log]:
        """The copies under way, without those that have become their replicas' logs."""
        return [
            copying.future.log for replica, copying in self._moves.items() if replica.future is copying.future
        ]
