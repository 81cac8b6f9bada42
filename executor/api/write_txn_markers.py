"""WriteTxnMarkers: end producers' transactions in partitions that are led here (KIP-98). Versions 1 and 2.

Asked by transaction coordinators, and by whoever ends a transaction that hangs (KIP-664). A marker is
appended like a client's records with acks=all, and its row says that it was when it is committed. Markers of
`__consumer_offsets` are the group coordinator's to append, for it has to know which offsets they make good.
Rows are by producer id, as in Kafka: of two markers of one producer for a partition, the last is told of.

Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from sparklog.clocks import wall_clock_ms
from sparklog.errors import ErrorCode, KafkaError, kafka_error
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.storage.transaction_markers import EndTransaction
from sparklog.types import ProducerId, TimestampMs
from sparklog.wire.requests import Deferred, Request, Response
from sparklog.wire.turns import turn
from sparklog.wire.versions import upgrade_in_steps

_COORDINATORS_ERRORS: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    }
)
"""What a coordinator of groups says, where whoever sent the marker knows of partitions only."""


class CompleteTransaction(Protocol):
    """How a marker gets into a partition that is a coordinator's."""

    def __call__(self, partition: int, end: EndTransaction, answer: Callable[[ErrorCode], None]) -> None:
        """Append the marker, and `answer` once, when it is committed or cannot be."""


class _Write:
    """One marker on its way into one partition."""

    __slots__ = ("error_code", "replica", "settled", "writes")

    def __init__(self, writes: "_Writes") -> None:
        self.writes = writes
        self.error_code = ErrorCode.none
        self.replica: Replica | None = None
        self.settled = True
        """Whether there is nothing to wait for (any more)."""

    def settle(self, error: KafkaError | None) -> None:
        """The marker is committed, or will not be here."""
        if not self.settled:
            self.settled = True
            self.error_code = ErrorCode.none if error is None else error.error_code
            self.writes.settled()


class _Writes:
    """The markers of one request."""

    def __init__(self, delayed: DelayedOperations) -> None:
        self._delayed = delayed
        self._by_producer: dict[ProducerId, dict[str, dict[int, _Write]]] = {}
        self._all: list[_Write] = []
        self._unsettled = 0
        self._deferred: Deferred | None = None
        """Set while the answer waits."""
        self._bucket = 0

    def add(self, producer_id: ProducerId, topic: str, partition: int) -> _Write:
        """Return one more, which has nothing to wait for so far."""
        write = _Write(self)
        self._by_producer.setdefault(producer_id, {}).setdefault(topic, {})[partition] = write
        self._all.append(write)
        return write

    def answer(self, timeout_ms: int) -> Awaitable[Response]:
        """Answer when all are settled, and at the latest when the time is up."""
        self._unsettled = sum(not write.settled for write in self._all)
        if not self._unsettled:
            return self._response()
        self._deferred = Deferred()
        self._bucket = self._delayed.add(self, self._delayed.now_ms() + timeout_ms)
        return self._deferred

    def settled(self) -> None:
        """One more is settled."""
        if self._deferred is None:
            return
        self._unsettled -= 1
        if self._unsettled == 0:
            deferred, self._deferred = self._deferred, None
            self._delayed.discard(self, self._bucket)
            deferred.complete(self._response())

    def expire(self) -> None:
        """The time is up; markers that are appended may yet be committed."""
        error = KafkaError(ErrorCode.request_timed_out, "not all replicas in sync have the marker yet")
        late = [write for write in self._all if not write.settled]
        for write in late:
            write.settle(error)
        for write in late:
            if write.replica is not None:
                write.replica.progress.drop_settled_appends()

    def recheck(self) -> None:
        """Nothing wakes this; partitions settle what waits for them."""

    async def _response(self) -> Response:
        try:
            return await self._rows()
        finally:
            # They hold this and their replicas; in a circle, the files of a deleted log would stay open.
            self._all.clear()
            self._by_producer.clear()

    async def _rows(self) -> Response:
        markers = []
        for producer_id, by_topic in self._by_producer.items():
            topics = []
            for topic, by_partition in by_topic.items():
                rows = []
                for partition, write in by_partition.items():
                    rows.append(
                        WritableTxnMarkerPartitionResult(
                            partition_index=partition, error_code=write.error_code
                        )
                    )
                    await turn()
                topics.append(WritableTxnMarkerTopicResult(name=topic, partitions=tuple(rows)))
            markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=tuple(topics)))
            await turn()
        return WriteTxnMarkersResponse(markers=tuple(markers))


class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers requests."""

    def __init__(
        self,
        table: PartitionTable,
        delayed: DelayedOperations,
        timeout_ms: int,
        *,
        complete_group_transaction: CompleteTransaction | None = None,
        wall_ms: Callable[[], TimestampMs] = wall_clock_ms,
    ) -> None:
        """Wait for `timeout_ms` for a marker; without group coordinators there is none of theirs."""
        self._table = table
        self._delayed = delayed
        self._timeout_ms = timeout_ms
        self._complete_group_transaction = complete_group_transaction
        self._wall_ms = wall_ms

    async def handle(self, request: Request) -> Response:
        """Append the markers, and answer when they are committed."""
        body = await upgrade_in_steps(request.body)
        writes = _Writes(self._delayed)
        for marker in body.markers:
            end = EndTransaction(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            for topic in marker.topics:
                for partition in topic.partition_indexes:
                    self._write(
                        writes.add(end.producer_id, topic.name, partition), end, topic.name, partition
                    )
                    await turn()
            await turn()
        return writes.answer(self._timeout_ms)

    def _write(self, write: _Write, end: EndTransaction, topic: str, partition: int) -> None:
        try:
            if end.producer_id < 0 or end.producer_epoch < 0:
                raise KafkaError(ErrorCode.invalid_request, "a marker has a producer id and an epoch")
            replica = write.replica = self._find(topic, partition)
            if topic == CONSUMER_OFFSETS_TOPIC:
                self._leave_to_coordinator(write, end, partition)
            else:
                replica.require_leader()
                replica.append_marker(end, self._delayed.now_ms(), self._wall_ms(), write)
        except (KafkaError, OSError) as error:
            write.error_code = kafka_error(error).error_code

    def _find(self, topic: str, partition: int) -> Replica:
        """Return the replica of a partition; one that is not here, or is offline, is unknown to Kafka."""
        try:
            replica = self._table.find(topic, partition)
        except KafkaError as error:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, error.message) from error
        if replica.offline:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{replica} is offline")
        return replica

    def _leave_to_coordinator(self, write: _Write, end: EndTransaction, partition: int) -> None:
        complete = self._complete_group_transaction
        if complete is None:
            raise KafkaError(ErrorCode.not_leader_or_follower, "there are no group coordinators here")

        def answer(error_code: ErrorCode) -> None:
            if error_code in _COORDINATORS_ERRORS:
                error_code = ErrorCode.not_leader_or_follower
            failed = error_code is not ErrorCode.none
            write.settle(KafkaError(error_code, "the group coordinator said so") if failed else None)

        write.settled = False
        try:
            complete(partition, end, answer)
        except BaseException:
            write.settled = True
            raise
