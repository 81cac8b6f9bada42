"""Produce: append what clients send to the partitions led here, and acknowledge as they asked.

When an answer leaves is said in `machine/delayed_produce.py`; acks=0 has none. A retry of an idempotent
producer is answered with the offsets it got the first time, under the same rule for acks=all. Versions 3 to
13; from 13 on topics are named by id.

A batch that has to be looked into by a thread (`produce_examination`) is appended afterwards if this broker
still leads in the same leader epoch. Nothing more is read from its connection until then, so that no later
batch of the same producer overtakes it; and as a connection has one such request, examinations that wait are
bounded by the connections.
"""

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from executor.api.machine.delayed_produce import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    DelayedProduce,
    ProducedPartition,
)
from executor.api.produce_examination import AtOnce, Unexamined, examine_all
from executor.api.produce_responses import produce_response, produce_response_in_steps
from executor.partitions.delayed_operations import DelayedOperations
from executor.partitions.table import PartitionTable
from sparklog.clocks import wall_clock_ms
from sparklog.errors import ErrorCode, KafkaError, kafka_error
from sparklog.records.batch import CODEC_BITS, TRANSACTIONAL_BIT, validate_produced
from sparklog.types import TimestampMs
from sparklog.wire.requests import NO_RESPONSE, Deferred, Request, Steps

_NONE: Final = ErrorCode.none
_PARTITIONS_AT_ONCE: Final = 16
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class _Arrival:
    """One request while its batches are appended."""

    __slots__ = ("at_once", "delayed", "now_ms", "refusal", "unexamined", "wall_ms")

    def __init__(
        self, request: Request, now_ms: int, wall_ms: TimestampMs, max_decompressed_bytes: int
    ) -> None:
        body = request.body
        self.delayed = DelayedProduce(request.api_version, body.acks)
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.refusal = _refusal(body)
        self.at_once = AtOnce(max_decompressed_bytes)
        self.unexamined: list[Unexamined] = []


class ProduceHandler:
    """Answers Produce requests."""

    def __init__(
        self,
        table: PartitionTable,
        delayed: DelayedOperations,
        examiners: ThreadPoolExecutor,
        *,
        max_decompressed_bytes: int,
        wall_ms: Callable[[], TimestampMs] = wall_clock_ms,
    ) -> None:
        self._table = table
        self._delayed = delayed
        self._examiners = examiners
        self._max_decompressed_bytes = max_decompressed_bytes
        self._wall_ms = wall_ms

    def handle(self, request: Request) -> Any:
        """Append and answer, or return what will be answered when the replicas in sync have it."""
        arrival = _Arrival(request, self._delayed.now_ms(), self._wall_ms(), self._max_decompressed_bytes)
        topics = request.body.topic_data
        if sum([len(topic.partition_data) for topic in topics]) > _PARTITIONS_AT_ONCE:
            return self._handle_in_steps(request, arrival)
        by_id = request.api_version >= 13
        for topic in topics:
            name = topic.topic_id if by_id else topic.name
            for data in topic.partition_data:
                self._append(arrival, arrival.delayed.add(name, data.index), data.records)
        return self._answer(request, arrival)

    def _handle_in_steps(self, request: Request, arrival: _Arrival) -> Steps:
        by_id = request.api_version >= 13
        for topic in request.body.topic_data:
            name = topic.topic_id if by_id else topic.name
            for data in topic.partition_data:
                self._append(arrival, arrival.delayed.add(name, data.index), data.records)
                yield
        return self._answer(request, arrival)

    def _append(
        self, arrival: _Arrival, produced: ProducedPartition, records: bytes | memoryview | None
    ) -> None:
        """Append what came for one partition, or note what is to be examined first, or what is wrong."""
        delayed, wall_ms = arrival.delayed, arrival.wall_ms
        try:
            if arrival.refusal is not None:
                raise arrival.refusal
            replica = self._table.find(produced.topic, produced.partition)
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
                produce_version=delayed.version,
                log_append_time=settings.log.log_append_time,
                timestamp_before_max_ms=settings.timestamp_before_max_ms,
                timestamp_after_max_ms=settings.timestamp_after_max_ms,
            )
            if header.attributes & TRANSACTIONAL_BIT:
                raise KafkaError(ErrorCode.invalid_txn_state, "transactions are not served")
            if (header.attributes & CODEC_BITS or settings.examines_all) and not (
                arrival.at_once.examine(records, header, settings)
            ):
                demands = settings.demands(wall_ms, self._max_decompressed_bytes)
                arrival.unexamined.append(
                    Unexamined(produced, replica, replica.leader_epoch, bytes(records), header, demands)
                )
            else:
                waiting = produced if delayed.acks == ACKS_ALL else None
                produced.appended = replica.append(records, header, arrival.now_ms, wall_ms, waiting)
        except (KafkaError, OSError) as error:
            produced.fail(kafka_error(error))

    def _append_examined(self, request: Request, arrival: _Arrival) -> Steps:
        """Append what a thread has looked into, where it still may be appended, and answer."""
        unexamined, arrival.unexamined = arrival.unexamined, []
        examination = self._delayed.beside(self._examiners, examine_all, unexamined)
        yield examination
        now_ms, wall_ms = self._delayed.now_ms(), self._wall_ms()
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
                waiting = produced if arrival.delayed.acks == ACKS_ALL else None
                produced.appended = replica.append(*result, now_ms, wall_ms, waiting)
            except (KafkaError, OSError) as error:
                produced.fail(kafka_error(error))
        return self._answer(request, arrival)

    def _answer(self, request: Request, arrival: _Arrival) -> Any:
        if arrival.unexamined:
            return self._append_examined(request, arrival)
        delayed = arrival.delayed
        if delayed.unsettled:
            return self._wait(delayed, arrival.now_ms + request.body.timeout // _MILLISECOND)
        if delayed.acks == ACKS_NONE:
            for produced in delayed.partitions:
                if produced.error_code is not _NONE:
                    # Nothing else can tell this client: it sees the connection end and looks for the leader.
                    raise KafkaError(produced.error_code, f"Produce with acks=0 failed: {produced.message}")
            return NO_RESPONSE
        return self._response(delayed)

    def _wait(self, delayed: DelayedProduce, deadline_ms: int) -> Deferred:
        deferred = Deferred()
        bucket = self._delayed.add(delayed, deadline_ms)

        def answer() -> None:
            delayed.answer = None
            self._delayed.discard(delayed, bucket)
            if not deferred.abandoned:
                deferred.complete(self._response(delayed))

        delayed.answer = answer
        return deferred

    def _response(self, delayed: DelayedProduce) -> Any:
        """Return the response entity, or the steps in which it is made."""
        if len(delayed.partitions) > _PARTITIONS_AT_ONCE:
            return produce_response_in_steps(delayed, self._table)
        return produce_response(delayed, self._table)


def _refusal(body: Any) -> KafkaError | None:
    """Return why nothing in the request can be appended, if so."""
    if body.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return KafkaError(ErrorCode.invalid_required_acks, f"acks may be 0, 1 or -1 (all), not {body.acks}")
    if body.transactional_id is not None:
        return KafkaError(ErrorCode.invalid_txn_state, "transactions are not served")
    return None
