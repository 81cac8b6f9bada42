"""Produce: append what clients send to the partitions led here, and acknowledge as they asked.

acks=1 is answered after the append, acks=all when everything appended is below the high watermark of an
ISR of at least min.insync.replicas, acks=0 never. A retry of an idempotent producer is answered with the
offsets it got the first time, under the same rule for acks=all. Versions 3 to 13; from 13 on topics are
named by id.

A batch whose header is not enough to go by (`examination`: it is compressed, or its topic asks for more) is
examined by a thread, and appended afterwards if this broker still leads in the same leader epoch. Nothing
more is read from its connection until then, so that no later batch of the same producer overtakes it; and as
a connection has one such request, examinations that wait are bounded by the connections. The way to a
thread and back takes several times what it takes to count the records of a small batch, so these are counted
at once: of each request as much as takes about a millisecond.
"""

import asyncio
import datetime
import importlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.index import load_response_schema

from executor.partitions.delayed_operations import DelayedOperations
from executor.partitions.replica import Replica
from executor.partitions.settings import PartitionSettings
from executor.partitions.table import PartitionTable
from executor.records.examination import Demands, examine
from sparklog.clocks import wall_clock_ms
from sparklog.errors import ErrorCode, KafkaError, kafka_error
from sparklog.records.batch import CODEC_BITS, BatchHeader, validate_produced
from sparklog.records.codecs import DecompressionLimitError
from sparklog.types import LeaderEpoch, Offset
from sparklog.wire.requests import NO_RESPONSE, Deferred, Request, Steps
from sparklog.wire.throttling import unthrottled
from sparklog.wire.turns import in_one_go

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

_UNKNOWN: Final = -1
_PARTITIONS_AT_ONCE: Final = 16
_EXAMINED_AT_ONCE_BYTES: Final = 64 * 1024
"""How many bytes of compressed batches one request may have examined at once,"""
_EXAMINED_AT_ONCE_RECORDS: Final = 4_000
"""how many records,"""
_EXPANDED_AT_ONCE_BYTES: Final = 256 * 1024
"""and to how much each batch may expand there: one that is found to be larger begins anew on a thread."""
_PRODUCE: Final = 0
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NONE: Final = ErrorCode.none
_LEADER_UNKNOWN: Final = frozenset({ErrorCode.not_leader_or_follower})


class ProducedPartition:
    """The outcome for one partition of a request."""

    __slots__ = (
        "base_offset",
        "error_code",
        "log_append_time_ms",
        "log_start_offset",
        "message",
        "partition",
        "produce",
        "settled",
        "topic",
    )

    def __init__(self, produce: "WaitingProduce | None", topic: UUID | str | None, partition: int) -> None:
        self.produce = produce
        self.topic = topic
        self.partition = partition
        self.error_code = _NONE
        self.message: str | None = None
        self.base_offset: Offset = _UNKNOWN
        self.log_append_time_ms: int | None = None
        self.log_start_offset: Offset = _UNKNOWN
        self.settled = True

    def fail(self, error: KafkaError) -> None:
        """The records were refused, or cannot be acknowledged."""
        self.error_code = error.error_code
        self.message = error.message
        self.base_offset = self.log_start_offset = _UNKNOWN

    def settle(self, error: KafkaError | None) -> None:
        """What was appended is committed, or will not be here."""
        if self.settled:
            return
        self.settled = True
        if error is not None:
            self.fail(error)
        assert self.produce is not None
        self.produce.one_settled()


class WaitingProduce:
    """A request with acks=all whose records are not all committed."""

    __slots__ = ("_bucket", "_handler", "_partitions", "_unsettled", "_version", "_watched", "deferred")

    def __init__(self, handler: "ProduceHandler", api_version: int) -> None:
        self.deferred = Deferred()
        self._handler = handler
        self._version = api_version
        self._partitions: list[ProducedPartition] = []
        self._watched: list[Replica] = []
        self._unsettled = 0
        self._bucket: int | None = None

    def wait(self, partitions: list[ProducedPartition], watched: list[Replica], deadline_ms: int) -> bool:
        """Begin to wait for the unsettled of `partitions`; return False if there are none (any more)."""
        self._unsettled = sum(not partition.settled for partition in partitions)
        if self._unsettled == 0:
            return False
        self._partitions = partitions
        self._watched = watched
        self._bucket = self._handler.delayed.add(self, deadline_ms)
        return True

    def one_settled(self) -> None:
        """One more partition is answered for; answer the request when all are."""
        self._unsettled -= 1
        if self._unsettled == 0:
            self._answer()

    def expire(self) -> None:
        """The request's timeout has passed."""
        for partition in self._partitions:
            if not partition.settled:
                partition.settled = True
                partition.fail(
                    KafkaError(ErrorCode.request_timed_out, "not all replicas in sync have the records yet")
                )
        for replica in self._watched:
            replica.drop_settled_appends()
        self._answer()

    def recheck(self) -> None:
        """Nothing wakes a produce; its partitions settle it."""

    def _answer(self) -> None:
        if self._bucket is not None:
            self._handler.delayed.discard(self, self._bucket)
        if not self.deferred.abandoned:
            self.deferred.complete(self._handler.response(self._partitions, self._version))


class _Unexamined(NamedTuple):
    """A batch that is looked into by a thread before it is appended."""

    produced: ProducedPartition
    replica: Replica
    leader_epoch: LeaderEpoch | None
    """In which it came."""
    records: bytes
    header: BatchHeader
    demands: Demands


class _AtOnce:
    """What is examined of one request without a thread."""

    __slots__ = ("_bytes_left", "_max_decompressed_bytes", "_records_left")

    def __init__(self, max_decompressed_bytes: int) -> None:
        self._max_decompressed_bytes = min(max_decompressed_bytes, _EXPANDED_AT_ONCE_BYTES)
        self._bytes_left = _EXAMINED_AT_ONCE_BYTES
        self._records_left = _EXAMINED_AT_ONCE_RECORDS

    def examine(self, records: bytes | memoryview, header: BatchHeader, settings: PartitionSettings) -> bool:
        """Return whether the batch has been found good, and is stored as it is; False leaves it to a thread.

        Raises:
            KafkaError: what `examine` raises.
        """
        self._bytes_left -= len(records)
        self._records_left -= header.record_count
        if settings.examines_all or settings.codec is not None:
            return False
        if self._bytes_left < 0 or self._records_left < 0:
            return False
        demands = Demands(self._max_decompressed_bytes, settings.log.max_message_bytes)
        try:
            examine(records, header, demands)
        except DecompressionLimitError:
            return False
        return True


class ProduceHandler:
    """Answers Produce requests."""

    def __init__(
        self,
        table: PartitionTable,
        delayed: DelayedOperations,
        examiners: ThreadPoolExecutor,
        *,
        max_decompressed_bytes: int,
    ) -> None:
        self.delayed = delayed
        self._table = table
        self._examiners = examiners
        self._max_decompressed_bytes = max_decompressed_bytes

    def handle(self, request: Request) -> Any:
        """Append and answer, or return what will be answered when the replicas in sync have it."""
        steps = self._handle_in_steps(request)
        topics = request.body.topic_data
        if sum([len(topic.partition_data) for topic in topics]) > _PARTITIONS_AT_ONCE:
            return steps
        return in_one_go(steps)

    def _handle_in_steps(self, request: Request) -> Steps:
        body = request.body
        version = request.api_version
        refusal = _refusal(body)
        now_ms = self.delayed.now_ms()
        wall_ms = wall_clock_ms()
        all_acks = body.acks == ACKS_ALL
        waiting = WaitingProduce(self, version) if all_acks else None
        partitions: list[ProducedPartition] = []
        watched: list[Replica] = []
        unexamined: list[_Unexamined] = []
        at_once = _AtOnce(self._max_decompressed_bytes)
        for topic in body.topic_data:
            name = topic.topic_id if version >= 13 else topic.name
            for data in topic.partition_data:
                produced = ProducedPartition(waiting, name, data.index)
                partitions.append(produced)
                try:
                    if refusal is not None:
                        raise refusal
                    replica = self._table.find(name, data.index)
                    records = data.records
                    header = _validated(replica, records, version, wall_ms)
                    settings = replica.settings
                    if (header.attributes & CODEC_BITS or settings.examines_all) and not (
                        at_once.examine(records, header, settings)
                    ):
                        demands = settings.demands(wall_ms, self._max_decompressed_bytes)
                        unexamined.append(
                            _Unexamined(
                                produced, replica, replica.leader_epoch, bytes(records), header, demands
                            )
                        )
                    else:
                        _append(replica, records, header, produced, now_ms, wall_ms, watched)
                except (KafkaError, OSError) as error:
                    produced.fail(kafka_error(error))
                yield
        if unexamined:
            return self._examined(request, unexamined, waiting, partitions, watched, now_ms)
        return self._answer(request, waiting, partitions, watched, now_ms)

    def _examined(
        self,
        request: Request,
        unexamined: list[_Unexamined],
        waiting: WaitingProduce | None,
        partitions: list[ProducedPartition],
        watched: list[Replica],
        arrived_ms: int,
    ) -> Steps:
        """Append what a thread has looked into, where it still may be appended, and answer."""
        examination = asyncio.get_running_loop().run_in_executor(self._examiners, _examine_all, unexamined)
        yield examination
        now_ms = self.delayed.now_ms()
        wall_ms = wall_clock_ms()
        for (produced, replica, leader_epoch, *_), result in zip(
            unexamined, examination.result(), strict=True
        ):
            try:
                if isinstance(result, KafkaError):
                    raise result
                replica.leading()
                if replica.leader_epoch != leader_epoch:
                    raise KafkaError(
                        ErrorCode.not_leader_or_follower,
                        f"{replica.topic_partition} got another leader epoch while its records were examined",
                    )
                _append(replica, *result, produced, now_ms, wall_ms, watched)
            except (KafkaError, OSError) as error:
                produced.fail(kafka_error(error))
        return self._answer(request, waiting, partitions, watched, arrived_ms)

    def _answer(
        self,
        request: Request,
        waiting: WaitingProduce | None,
        partitions: list[ProducedPartition],
        watched: list[Replica],
        arrived_ms: int,
    ) -> Any:
        body = request.body
        if watched:
            assert waiting is not None
            if waiting.wait(partitions, watched, arrived_ms + body.timeout // _MILLISECOND):
                return waiting.deferred
        if body.acks == ACKS_NONE:
            for produced in partitions:
                if produced.error_code is not _NONE:
                    # Nothing else can tell this client: it sees the connection end and looks for the leader.
                    raise KafkaError(produced.error_code, f"Produce with acks=0 failed: {produced.message}")
            return NO_RESPONSE
        return self.response(partitions, request.api_version)

    # --- responses ------------------------------------------------------------------------------

    def response(self, partitions: list[ProducedPartition], version: int) -> Any:
        """Return the response entity of `version`, or the steps in which it is made."""
        steps = self._response_in_steps(partitions, version)
        return in_one_go(steps) if len(partitions) <= _PARTITIONS_AT_ONCE else steps

    def _response_in_steps(self, partitions: list[ProducedPartition], version: int) -> Steps:
        types = _types(version)
        topics: dict[UUID | str | None, list[Any]] = {}
        leaders: dict[int, Any] = {}
        for produced in partitions:
            extra: dict[str, Any] = {}
            if version >= 5:
                extra["log_start_offset"] = produced.log_start_offset
            if version >= 8:
                extra["record_errors"] = ()
                extra["error_message"] = produced.message
            if version >= 10 and produced.error_code in _LEADER_UNKNOWN:
                self._add_leader(produced, types, extra, leaders)
            row = types.partition(
                index=produced.partition,
                error_code=produced.error_code,
                base_offset=produced.base_offset,
                log_append_time=_time(produced.log_append_time_ms),
                **extra,
            )
            topics.setdefault(produced.topic, []).append(row)
            yield
        name_field = "topic_id" if version >= 13 else "name"
        extra = {"node_endpoints": tuple(leaders.values())} if leaders else {}
        return unthrottled(
            types.response,
            responses=tuple(
                types.topic(**{name_field: topic}, partition_responses=tuple(rows))
                for topic, rows in topics.items()
            ),
            **extra,
        )

    def _add_leader(
        self, produced: ProducedPartition, types: "_Types", extra: dict[str, Any], leaders: dict[int, Any]
    ) -> None:
        """Tell the client who leads, so that it need not ask for metadata first (KIP-951)."""
        registration = self._table.registration(produced.topic, produced.partition)
        if registration is None or registration.leader is None:
            return
        extra["current_leader"] = types.leader(
            leader_id=registration.leader, leader_epoch=registration.leader_epoch
        )
        found = self._table.endpoint(registration.leader)
        if found is not None:
            endpoint, rack = found
            leaders[registration.leader] = types.node(
                node_id=registration.leader, host=endpoint.host, port=endpoint.port, rack=rack
            )


def _refusal(body: Any) -> KafkaError | None:
    """Return why nothing in the request can be appended, if so."""
    if body.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return KafkaError(ErrorCode.invalid_required_acks, f"acks may be 0, 1 or -1 (all), not {body.acks}")
    if body.transactional_id is not None:
        return KafkaError(ErrorCode.invalid_txn_state, "transactions are not served")
    return None


def _validated(
    replica: Replica, records: bytes | memoryview | None, version: int, wall_ms: int
) -> BatchHeader:
    """Return the header of what came for a partition that is led here."""
    if records is None:
        raise KafkaError(ErrorCode.invalid_record, "there are no records")
    if replica.is_internal:
        raise KafkaError(
            ErrorCode.invalid_topic_exception, f"{replica}: clients do not write to internal topics"
        )
    replica.leading()
    settings = replica.settings
    header = validate_produced(
        records,
        now_ms=wall_ms,
        max_message_bytes=settings.log.max_message_bytes,
        produce_version=version,
        log_append_time=settings.log.log_append_time,
        timestamp_before_max_ms=settings.timestamp_before_max_ms,
        timestamp_after_max_ms=settings.timestamp_after_max_ms,
    )
    if header.is_transactional:
        raise KafkaError(ErrorCode.invalid_txn_state, "transactions are not served")
    return header


def _examine_all(batches: list[_Unexamined]) -> list[tuple[bytes | memoryview, BatchHeader] | KafkaError]:
    """Look into the batches of one request, on a thread of its own; return what became of each."""
    results: list[tuple[bytes | memoryview, BatchHeader] | KafkaError] = []
    for batch in batches:
        try:
            results.append(examine(batch.records, batch.header, batch.demands))
        except KafkaError as error:
            results.append(error)
    return results


def _append(
    replica: Replica,
    records: bytes | memoryview,
    header: BatchHeader,
    produced: ProducedPartition,
    now_ms: int,
    wall_ms: int,
    watched: list[Replica],
) -> None:
    """Append a batch; with acks=all have it settled when it is committed, and note its replica."""
    all_acks = produced.produce is not None
    appended = replica.append(records, header, now_ms, wall_ms, all_acks=all_acks)
    produced.base_offset = appended.base_offset
    produced.log_append_time_ms = appended.log_append_time_ms
    produced.log_start_offset = appended.log_start_offset
    if all_acks and not replica.wait_until_committed(appended.last_offset + 1, produced):
        produced.settled = False
        watched.append(replica)


def _time(timestamp_ms: int | None) -> datetime.datetime | None:
    if timestamp_ms is None:
        return None
    return _EPOCH + timestamp_ms * _MILLISECOND


class _Types(NamedTuple):
    response: Any
    topic: Any
    partition: Any
    leader: Any
    node: Any


@cache
def _types(version: int) -> _Types:
    module = importlib.import_module(load_response_schema(_PRODUCE, version).__module__)
    return _Types(
        module.ProduceResponse,
        module.TopicProduceResponse,
        module.PartitionProduceResponse,
        getattr(module, "LeaderIdAndEpoch", None),
        getattr(module, "NodeEndpoint", None),
    )
