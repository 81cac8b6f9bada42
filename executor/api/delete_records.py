"""DeleteRecords: let everything below an offset go (KIP-107).

The leader moves its log start offset at once; the answer waits until every live replica reports a log start
offset at least as high, which followers do with their next fetch. Versions 0 to 2. Source: Kafka's
DelayedDeleteRecords and ReplicaManager.
"""

import datetime
import itertools
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from sparklog.errors import ErrorCode, KafkaError, kafka_error
from sparklog.executor.loop.slices import SLICE_ITEMS
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.metadata.topic_names import is_internal_topic
from sparklog.types import Offset, or_minus_one
from sparklog.wire.requests import Deferred, Request, Response
from sparklog.wire.throttling import unthrottled
from sparklog.wire.turns import turn
from sparklog.wire.versions import upgrade_in_steps

_HIGH_WATERMARK: Final = -1
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class _Deletion:
    """One partition of a request."""

    __slots__ = ("error_code", "low_watermark", "partition", "replica", "topic", "up_to_offset")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.replica: Replica | None = None
        """None once the outcome is known."""
        self.up_to_offset: Offset = 0
        self.low_watermark: Offset | None = None
        self.error_code = ErrorCode.none

    def check(self) -> None:
        """See whether every replica has followed."""
        replica = self.replica
        if replica is None:
            return
        try:
            low_watermark = replica.require_leader().low_watermark(replica.log.log_start_offset)
        except KafkaError as error:
            self.error_code = error.error_code
            self.replica = None
            return
        if low_watermark is not None and low_watermark >= self.up_to_offset:
            self.low_watermark = low_watermark
            self.replica = None


class _Deletions:
    """The partitions of one request, and those of them that wait for followers."""

    def __init__(self, handler: "DeleteRecordsHandler") -> None:
        self._deferred: Deferred | None = None
        """Set while the answer waits; it has this."""
        self._handler = handler
        self._all: list[_Deletion] = []
        self._left: dict[Replica, list[_Deletion]] = {}
        self._moved: dict[Replica, None] = {}
        """Those of the replicas left that are to be looked at again."""
        self._bucket: int | None = None
        """None while it does not wait yet, or no more."""

    def add(self, deletion: _Deletion) -> None:
        """Take a partition in whose records are deleted here, or cannot be."""
        self._all.append(deletion)
        deletion.check()
        if deletion.replica is not None:
            self._left.setdefault(deletion.replica, []).append(deletion)
            self._handler.waiting.setdefault(deletion.replica, set()).add(self)

    def answer(self, timeout_ms: int) -> Awaitable[Response]:
        """Answer when nothing is left, and at the latest when the timeout has passed."""
        if not self._left:
            return _response(self._all)
        self._bucket = self._handler.delayed.add(self, self._handler.delayed.now_ms() + timeout_ms)
        if self._moved:
            self._handler.delayed.wake(self)
        self._deferred = Deferred(self.leave)
        return self._deferred

    def low_watermark_moved(self, replica: Replica) -> None:
        """A follower has reported another log start offset, or the replica leads no more."""
        self._moved[replica] = None
        if self._bucket is not None:
            self._handler.delayed.wake(self)

    def recheck(self) -> None:
        """Look at what has moved, a slice a turn of the loop."""
        for replica in tuple(itertools.islice(self._moved, SLICE_ITEMS)):
            del self._moved[replica]
            self._check(replica)
        if not self._left:
            self._complete()
        elif self._moved:
            self._handler.delayed.wake(self)

    def expire(self) -> None:
        """The request's timeout has passed."""
        for replica in self._moved:
            self._check(replica)
        for left in self._left.values():
            for deletion in left:
                if deletion.replica is not None:
                    deletion.error_code = ErrorCode.request_timed_out
        self._complete()

    def leave(self) -> None:
        """Wait no more; also when the client has gone, whatever timeout it gave."""
        if self._bucket is not None:
            self._handler.delayed.discard(self, self._bucket)
            self._bucket = None
        for replica in self._left:
            self._forget(replica)
        self._left = {}

    def _check(self, replica: Replica) -> None:
        left = self._left.get(replica, [])
        for deletion in left:
            deletion.check()
        if left and all(deletion.replica is None for deletion in left):
            del self._left[replica]
            self._forget(replica)

    def _forget(self, replica: Replica) -> None:
        waiting = self._handler.waiting[replica]
        waiting.discard(self)
        if not waiting:
            del self._handler.waiting[replica]

    def _complete(self) -> None:
        self.leave()
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            deferred.complete(_response(self._all))


class DeleteRecordsHandler(RoleListener[Replica]):
    """Answers DeleteRecords requests."""

    def __init__(self, table: PartitionTable, delayed: DelayedOperations) -> None:
        self.delayed = delayed
        self.waiting: dict[Replica, set[_Deletions]] = {}
        """The requests that wait for followers of a replica."""
        self._table = table

    async def handle(self, request: Request) -> Response:
        """Delete, and answer when the followers have too."""
        body = await upgrade_in_steps(request.body)
        deletions = _Deletions(self)
        try:
            for topic in body.topics:
                for partition in topic.partitions:
                    deletions.add(self._delete(topic.name, partition))
                    await turn()
        except BaseException:  # the connection has gone
            deletions.leave()
            raise
        return deletions.answer(body.timeout // _MILLISECOND)

    def low_watermark_moved(self, replica: Replica) -> None:
        """Followers may have deleted too, or it leads no more."""
        for deletions in self.waiting.get(replica, ()):
            deletions.low_watermark_moved(replica)

    became_leader = became_follower = suspended = stopped = deleted = low_watermark_moved

    def _delete(self, topic: str, asked: Any) -> _Deletion:
        deletion = _Deletion(topic, asked.partition_index)
        try:
            is_there = self._table.registration(topic, asked.partition_index) is not None
            if is_there and is_internal_topic(topic):
                raise KafkaError(
                    ErrorCode.invalid_topic_exception, f"records of internal topic {topic} cannot be deleted"
                )
            replica = self._table.find(topic, asked.partition_index)
            if replica.settings.log.compacts and not replica.settings.log.deletes:
                raise KafkaError(ErrorCode.policy_violation, f"{replica} has cleanup.policy=compact")
            deletion.up_to_offset = replica.delete_records(
                None if asked.offset == _HIGH_WATERMARK else asked.offset
            )
            deletion.replica = replica
        except (KafkaError, OSError) as error:
            deletion.error_code = kafka_error(error).error_code
        return deletion


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
