"""DeleteRecords: delete the records below an offset (KIP-107).

The leader moves its log start offset at once; the answer waits until every live replica reports a log start
offset at least as high, which followers do with their next fetch. Versions 0 to 2. Source: Kafka's
DelayedDeleteRecords and ReplicaManager.
"""

import datetime
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.loop.slices import SLICE_ITEMS
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.settling import Settling, SettlingPart
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.metadata.topic_names import is_internal_topic
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error
from sparklog.protocol.types import Offset, or_minus_one

_HIGH_WATERMARK: Final = -1
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class _Deletion(SettlingPart):
    __slots__ = ("low_watermark", "partition", "topic", "up_to_offset")

    def __init__(self, deletions: "_Deletions", topic: str, partition: int) -> None:
        super().__init__(deletions)
        self.replica: Replica | None
        self.topic = topic
        self.partition = partition
        self.up_to_offset: Offset = 0
        self.low_watermark: Offset | None = None

    def check(self) -> None:
        """Settle the partition if every live replica has followed."""
        if self.settled:
            return
        assert self.replica is not None
        try:
            low_watermark = self.replica.require_leader().low_watermark(self.replica.log.log_start_offset)
        except KafkaError as error:
            self.settle(error)
            return
        if low_watermark is not None and low_watermark >= self.up_to_offset:
            self.low_watermark = low_watermark
            self.settle(None)


class _Deletions(Settling[_Deletion]):
    __slots__ = ("_handler", "_left", "_moved")

    late = "not all live replicas have deleted the records yet"

    def __init__(self, handler: "DeleteRecordsHandler") -> None:
        super().__init__()
        self._handler = handler
        self._left: dict[Replica, list[_Deletion]] = {}
        self._moved: dict[Replica, None] = {}
        """Remaining replicas that need another look."""

    def add(self, deletion: _Deletion) -> None:
        self.parts.append(deletion)
        deletion.check()
        if not deletion.settled and deletion.replica is not None:
            self._left.setdefault(deletion.replica, []).append(deletion)
            self._handler.waiting.setdefault(deletion.replica, set()).add(self)

    async def until_deleted(self, timeout_ms: int) -> None:
        """Wait until every partition is settled, at most `timeout_ms`."""
        delayed = self._handler.delayed
        waiting = self.until_settled(delayed, delayed.now_ms() + timeout_ms)
        if self._moved and self.bucket is not None:
            delayed.wake(self)
        await waiting

    def low_watermark_moved(self, replica: Replica) -> None:
        """Note that a follower reported another log start offset, or that the leadership ended."""
        self._moved[replica] = None
        if self.bucket is not None:
            self._handler.delayed.wake(self)

    def recheck(self) -> None:
        """Check the moved replicas, a slice a turn of the loop."""
        for replica in tuple(itertools.islice(self._moved, SLICE_ITEMS)):
            del self._moved[replica]
            self._check(replica)
        if self._moved and self.bucket is not None:
            self._handler.delayed.wake(self)

    def expire(self) -> None:
        """Settle the rest: the request's timeout has passed."""
        for replica in tuple(self._moved):
            self._check(replica)
        super().expire()

    def leave(self) -> None:
        """Stop waiting, also when the client has disconnected before its timeout."""
        self.stop_waiting()
        left, self._left = self._left, {}
        for replica in left:
            self._forget(replica)
        self.parts.clear()

    def _check(self, replica: Replica) -> None:
        left = self._left.get(replica, [])
        for deletion in left:
            deletion.check()
        if left and all(deletion.settled for deletion in left) and self._left.pop(replica, []):
            self._forget(replica)

    def _forget(self, replica: Replica) -> None:
        waiting = self._handler.waiting[replica]
        waiting.discard(self)
        if not waiting:
            del self._handler.waiting[replica]


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    replicas = services.replicas
    handler = DeleteRecordsHandler(replicas.table, replicas.delayed)
    replicas.listeners.append(handler)
    return {ApiKey.DELETE_RECORDS: handler.handle}


class DeleteRecordsHandler(RoleListener[Replica]):
    def __init__(self, table: PartitionTable, delayed: DelayedOperations) -> None:
        self.delayed = delayed
        self.waiting: dict[Replica, set[_Deletions]] = {}
        """The requests that wait for followers of a replica."""
        self._table = table

    async def handle(self, request: Request) -> Response:
        """Delete, and answer once the followers have deleted too."""
        body = await upgrade_in_steps(request.body)
        deletions = _Deletions(self)
        try:
            for topic in body.topics:
                for partition in topic.partitions:
                    deletion = _Deletion(deletions, topic.name, partition.partition_index)
                    self._delete(deletion, partition.offset)
                    deletions.add(deletion)
                    await turn()
            await deletions.until_deleted(body.timeout // _MILLISECOND)
            return await _response(deletions.parts)
        finally:
            deletions.leave()

    def low_watermark_moved(self, replica: Replica) -> None:
        for deletions in self.waiting.get(replica, ()):
            deletions.low_watermark_moved(replica)

    became_leader = became_follower = suspended = stopped = deleted = low_watermark_moved

    def _delete(self, deletion: _Deletion, offset: Offset) -> None:
        topic, partition = deletion.topic, deletion.partition
        try:
            is_there = self._table.registration(topic, partition) is not None
            if is_there and is_internal_topic(topic):
                raise KafkaError(
                    ErrorCode.invalid_topic_exception, f"records of internal topic {topic} cannot be deleted"
                )
            replica = self._table.find(topic, partition)
            if replica.settings.log.compacts and not replica.settings.log.deletes:
                raise KafkaError(ErrorCode.policy_violation, f"{replica} has cleanup.policy=compact")
            deletion.up_to_offset = replica.delete_records(None if offset == _HIGH_WATERMARK else offset)
            deletion.replica, deletion.settled = replica, False
        except (KafkaError, OSError) as error:
            deletion.error_code = kafka_error(error).error_code


async def _response(deletions: Sequence[_Deletion]) -> Response:
    topics: dict[str, list[Any]] = {}
    for deletion in deletions:
        topics.setdefault(deletion.topic, []).append(
            DeleteRecordsPartitionResult(
                partition_index=deletion.partition,
                low_watermark=or_minus_one(deletion.low_watermark),
                error_code=deletion.error_code,
            )
        )
        await turn()
    return unthrottled(
        DeleteRecordsResponse,
        topics=tuple(
            DeleteRecordsTopicResult(name=name, partitions=tuple(rows)) for name, rows in topics.items()
        ),
    )
