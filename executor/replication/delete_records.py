"""DeleteRecords: let everything below an offset go (KIP-107).

The leader moves its log start offset at once; the answer waits until every live replica reports a log start
offset at least as high, which followers do with their next fetch. Versions 0 to 2. Source: Kafka's
DelayedDeleteRecords and ReplicaManager.
"""

import datetime
from typing import Any, Final

from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from executor.replication.delayed import DelayedOperations
from executor.replication.partition_table import PartitionTable
from executor.replication.replica import Replica
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.topic_names import is_internal_topic
from sparklog.types import Offset
from sparklog.wire.server import Deferred, Request
from sparklog.wire.versions import upgrade

_HIGH_WATERMARK: Final = -1
_UNKNOWN: Final = -1
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_NO_THROTTLE: Final = datetime.timedelta(0)


class _Deletion:
    """One partition of a request."""

    __slots__ = ("error_code", "low_watermark", "partition", "replica", "topic", "up_to_offset")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.replica: Replica | None = None
        """None once the outcome is known."""
        self.up_to_offset: Offset = 0
        self.low_watermark: Offset = _UNKNOWN
        self.error_code = ErrorCode.none

    def check(self) -> None:
        """See whether every replica has followed."""
        replica = self.replica
        if replica is None:
            return
        try:
            low_watermark = replica.leading().low_watermark(replica.log.log_start_offset)
        except KafkaError as error:
            self.error_code = error.error_code
            self.replica = None
            return
        if low_watermark is not None and low_watermark >= self.up_to_offset:
            self.low_watermark = low_watermark
            self.replica = None


class _WaitingDeletion:
    """A request some of whose partitions wait for followers."""

    def __init__(self, handler: "DeleteRecordsHandler", deletions: list[_Deletion], deadline_ms: int) -> None:
        self.deferred = Deferred(self._leave)
        self.deletions = deletions
        self._handler = handler
        self._bucket = handler.delayed.add(self, deadline_ms)

    def recheck(self) -> None:
        """A follower has reported another log start offset."""
        for deletion in self.deletions:
            deletion.check()
        if all(deletion.replica is None for deletion in self.deletions):
            self._answer()

    def expire(self) -> None:
        """The request's timeout has passed."""
        for deletion in self.deletions:
            deletion.check()
            if deletion.replica is not None:
                deletion.error_code = ErrorCode.request_timed_out
        self._answer()

    def _answer(self) -> None:
        self._leave()
        self.deferred.complete(_response(self.deletions))

    def _leave(self) -> None:
        """Wait no more; also when the client has gone, whatever timeout it gave."""
        self._handler.delayed.discard(self, self._bucket)
        self._handler.waiting.discard(self)


class DeleteRecordsHandler:
    """Answers DeleteRecords requests."""

    def __init__(self, table: PartitionTable, delayed: DelayedOperations) -> None:
        self.delayed = delayed
        self.waiting: set[_WaitingDeletion] = set()
        self._table = table

    def handle(self, request: Request) -> Any:
        """Delete, and answer when the followers have too."""
        body = upgrade(request.body)
        deletions = [
            self._delete(topic.name, partition) for topic in body.topics for partition in topic.partitions
        ]
        for deletion in deletions:
            deletion.check()
        if all(deletion.replica is None for deletion in deletions):
            return _response(deletions)
        waiting = _WaitingDeletion(self, deletions, self.delayed.now_ms() + body.timeout // _MILLISECOND)
        self.waiting.add(waiting)
        return waiting.deferred

    def low_watermark_moved(self, replica: Replica) -> None:
        """A follower of `replica` has reported another log start offset, or it leads no more."""
        for waiting in self.waiting:
            if any(deletion.replica is replica for deletion in waiting.deletions):
                self.delayed.wake(waiting)

    def brokers_changed(self) -> None:
        """A broker is fenced, and waited for no more; or another one is live."""
        for waiting in self.waiting:
            self.delayed.wake(waiting)

    def _delete(self, topic: str, asked: Any) -> _Deletion:
        deletion = _Deletion(topic, asked.partition_index)
        try:
            if is_internal_topic(topic):
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
        except KafkaError as error:
            deletion.error_code = error.error_code
        except OSError:
            deletion.error_code = ErrorCode.kafka_storage_error
        return deletion


def _response(deletions: list[_Deletion]) -> DeleteRecordsResponse:
    topics: dict[str, list[Any]] = {}
    for deletion in deletions:
        topics.setdefault(deletion.topic, []).append(
            DeleteRecordsPartitionResult(
                partition_index=deletion.partition,
                low_watermark=deletion.low_watermark,
                error_code=deletion.error_code,
            )
        )
    return DeleteRecordsResponse(
        throttle_time=_NO_THROTTLE,
        topics=tuple(
            DeleteRecordsTopicResult(name=name, partitions=tuple(rows)) for name, rows in topics.items()
        ),
    )
