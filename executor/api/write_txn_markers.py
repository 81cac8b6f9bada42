"""WriteTxnMarkers: end producers' transactions in partitions that are led here (KIP-98). Versions 1 and 2.

Sent by transaction coordinators, and by tools that end a hanging transaction (KIP-664). A marker is appended
like a client's records with acks=all, and its row is answered once it is committed. Markers of
`__consumer_offsets` are appended by the group coordinator, which has to know the offsets that they commit.
Rows are by producer id, as in Kafka: of two markers of one producer for a partition, the last is answered.

Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, Protocol

from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.settling import Settling, SettlingPart
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.turns import held
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error
from sparklog.protocol.types import ProducerId, TimestampMs

_COORDINATORS_ERRORS: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    }
)
"""The errors of a group coordinator, mapped to those of a partition, which the sender knows."""


class CompleteTransaction(Protocol):
    """The append of a marker to a coordinator's partition."""

    def __call__(
        self, partition: int, end: EndTransactionMarker, answer: Callable[[ErrorCode], None]
    ) -> None:
        """Append the marker; call `answer` once, when it is committed or cannot be."""


class _Write(SettlingPart):
    __slots__ = ("partition", "producer_id", "topic")

    def __init__(self, writes: "_Writes", producer_id: ProducerId, topic: str, partition: int) -> None:
        super().__init__(writes)
        self.replica: Replica | None
        self.producer_id = producer_id
        self.topic = topic
        self.partition = partition


class _Writes(Settling[_Write]):
    __slots__ = ()

    late = "not all replicas in sync have the marker yet"

    async def response(self) -> Response:
        by_producer: dict[ProducerId, dict[str, dict[int, ErrorCode]]] = {}
        for write in self.parts:
            by_topic = by_producer.setdefault(write.producer_id, {})
            by_topic.setdefault(write.topic, {})[write.partition] = write.error_code
            await turn()
        markers = []
        for producer_id, by_topic in by_producer.items():
            topics = []
            for topic, by_partition in by_topic.items():
                rows = []
                for partition, error_code in by_partition.items():
                    rows.append(
                        WritableTxnMarkerPartitionResult(partition_index=partition, error_code=error_code)
                    )
                    await turn()
                topics.append(WritableTxnMarkerTopicResult(name=topic, partitions=tuple(rows)))
            markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=tuple(topics)))
            await turn()
        return WriteTxnMarkersResponse(markers=tuple(markers))


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    replicas = services.replicas
    handler = WriteTxnMarkersHandler(
        replicas.table,
        replicas.delayed,
        services.config.request_timeout_ms,
        disk_threads=replicas.executor,
        complete_group_transaction=replicas.coordinators.groups.complete_transaction,
    )
    return {ApiKey.WRITE_TXN_MARKERS: handler.handle}


class WriteTxnMarkersHandler:
    def __init__(
        self,
        table: PartitionTable,
        delayed: DelayedOperations,
        timeout_ms: int,
        *,
        disk_threads: Executor | None = None,
        complete_group_transaction: CompleteTransaction | None = None,
        wall_ms: Callable[[], TimestampMs] = wall_clock_ms,
    ) -> None:
        """`timeout_ms` bounds the wait for a marker; without group coordinators there is none of theirs.

        `disk_threads` put a log without records on the disk before its marker; None: the append does.
        """
        self._table = table
        self._delayed = delayed
        self._timeout_ms = timeout_ms
        self._disk_threads = disk_threads
        self._complete_group_transaction = complete_group_transaction
        self._wall_ms = wall_ms

    async def handle(self, request: Request) -> Response:
        """Append the markers, and answer once they are committed."""
        body = await upgrade_in_steps(request.body)
        writes = _Writes()
        for marker in body.markers:
            end = EndTransactionMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            for topic in marker.topics:
                for partition in topic.partition_indexes:
                    write = _Write(writes, end.producer_id, topic.name, partition)
                    writes.parts.append(write)
                    await self._sync_identity(topic.name, partition)
                    self._write(write, end)
                    await turn()
            await turn()
        await writes.until_settled(self._delayed, self._delayed.now_ms() + self._timeout_ms)
        try:
            return await writes.response()
        finally:
            # They hold this and their replicas; in a circle, the files of a deleted log would stay open.
            writes.parts.clear()

    async def _sync_identity(self, topic: str, partition: int) -> None:
        """Put a log that is led here on the disk, if a marker will be its first batch."""
        try:
            replica = self._table.find(topic, partition)
        except KafkaError:
            return
        if self._disk_threads is None or replica.leadership is None or not replica.log.identity_unsynced:
            return
        with suppress(KafkaError):  # the append fails with it
            await held(self._delayed.run_in_executor(self._disk_threads, replica.log.sync_identity))

    def _write(self, write: _Write, end: EndTransactionMarker) -> None:
        try:
            if end.producer_id < 0 or end.producer_epoch < 0:
                raise KafkaError(ErrorCode.invalid_request, "a marker has a producer id and an epoch")
            replica = write.replica = self._find(write.topic, write.partition)
            if write.topic == CONSUMER_OFFSETS_TOPIC:
                self._leave_to_coordinator(write, end)
            else:
                replica.require_leader()
                replica.append_marker(end, self._delayed.now_ms(), self._wall_ms(), write)
        except (KafkaError, OSError) as error:
            write.error_code = kafka_error(error).error_code

    def _find(self, topic: str, partition: int) -> Replica:
        """Return the replica of a partition; a missing or offline one is unknown, as in Kafka."""
        try:
            replica = self._table.find(topic, partition)
        except KafkaError as error:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, error.message) from error
        if replica.offline:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{replica} is offline")
        return replica

    def _leave_to_coordinator(self, write: _Write, end: EndTransactionMarker) -> None:
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
            complete(write.partition, end, answer)
        except BaseException:
            write.settled = True
            raise
