"""Produce: append what clients send to the partitions led here, and acknowledge as they asked.

The rule of answers stands in `delayed_produce.py`; acks=0 has none. A retry of an idempotent
producer is answered with the offsets it got the first time, under the same rule for acks=all. Versions 3 to
13; from 13 on topics are named by id.

The order of the questions in `ProduceHandler._append` is the order of the errors: whether the topic takes
records of clients, whether this broker leads, whether enough replicas are in sync, what the header says
(`validate_produced`), what the records say (`examine`), whether the producer's sequence goes on.

A batch that a thread has to look into (`ExaminationBudget`), the first batch of a new log, whose topic id a
thread has to fsync before, or one whose transaction the coordinator has to verify (`transactional_appends`),
is appended afterwards if this broker still leads in the same leader epoch. Nothing more is read from its
connection until then, so that no later batch of the same producer overtakes it; and as a connection has one
such request, those that wait are bounded by the connections.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

from sparklog.executor.api.produce.delayed_produce import (
    ACKS_ALL,
    ACKS_NONE,
    DelayedProduce,
    ProducedPartition,
    WaitingBatch,
)
from sparklog.executor.api.produce.produce_responses import produce_response, produce_response_of_many
from sparklog.executor.api.produce.transactional_appends import TransactionalProducers, verified_batches
from sparklog.executor.api.services import PartitionServices
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.walk import CostlyWalkError
from sparklog.executor.verification.transaction_verifier import TransactionVerifier
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.serving.requests import NO_RESPONSE, Handler, Request, Response
from sparklog.node.serving.turns import held
from sparklog.node.storage.log.log import Log
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.fixed.produce import PartitionProduce, PartitionProduced
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import CODEC_BITS, TRANSACTIONAL_BIT, BatchHeader, validate_produced
from sparklog.protocol.records.codecs import DecompressionLimitError
from sparklog.protocol.types import TimestampMs

_NONE: Final = ErrorCode.none
_FIRST_VERSION_BY_ID: Final = 13
_PARTITIONS_AT_ONCE: Final = 16
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)

_AT_ONCE_BYTES: Final = 64 * 1024
"""How many bytes of compressed batches one request may have examined at once,"""
_PLAIN_AT_ONCE_BYTES: Final = 1024 * 1024
"""how many of others,"""
_AT_ONCE_RECORDS: Final = 4_000
"""how many records,"""
_EXPANDED_AT_ONCE_BYTES: Final = 256 * 1024
"""and to how much each batch may expand there: of one that is larger a thread begins from the start."""


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    replicas = services.replicas
    handler = ProduceHandler(
        replicas.table,
        replicas.delayed,
        replicas.examiners,
        replicas.executor,
        replicas.transaction_verifier,
        max_decompressed_bytes=services.config.message_max_decompressed_bytes,
    )
    return {ApiKey.PRODUCE: handler.handle}


class ProduceHandler:
    def __init__(
        self,
        table: PartitionTable,
        delayed: DelayedOperations,
        examiners: ThreadPoolExecutor,
        disk_threads: Executor,
        verifier: TransactionVerifier,
        *,
        max_decompressed_bytes: int,
        wall_ms: Callable[[], TimestampMs] = wall_clock_ms,
    ) -> None:
        self._table = table
        self._delayed = delayed
        self._examiners = examiners
        self._disk_threads = disk_threads
        self._verifier = verifier
        self._max_decompressed_bytes = max_decompressed_bytes
        self._wall_ms = wall_ms

    def handle(self, request: Request) -> Any:
        """Append, and answer now or once the in-sync replicas have the records."""
        body, version = request.body, request.api_version
        now_ms, wall_ms = self._delayed.now_ms(), self._wall_ms()
        budget = ExaminationBudget(self._max_decompressed_bytes)
        produce = DelayedProduce(body, version, request.listener_name, now_ms, wall_ms)
        if type(body) is PartitionProduce:
            produce.fixed_request = body
            self._append(produce.add(body.topic, body.index), body.records, budget)
            body.records = b""  # the buffer that they were received in is used again
            return self._answer(body, produce, budget)
        if body.transactional_id is not None:
            return self._append_transactional(body, produce, budget)
        partition_count = 0
        for topic in body.topic_data:
            partition_count += len(topic.partition_data)
        if partition_count > _PARTITIONS_AT_ONCE:
            return self._append_many(body, produce, budget)
        parts = _records_of_partitions(body, version)
        producers = TransactionalProducers(None)
        for records in parts.values():
            producers.look(records)
        produce.refusal = produce.refusal or producers.refusal
        for (topic, partition), records in parts.items():
            self._append(produce.add(topic, partition), records, budget)
        return self._answer(body, produce, budget)

    def _append(
        self,
        produced: ProducedPartition,
        records: bytes | memoryview | None,
        budget: "ExaminationBudget",
        transactional: list[WaitingBatch] | None = None,
    ) -> None:
        """Append the batch of a partition, leave it to a thread in `budget.later`, or set its error.

        A batch of a transaction goes into `transactional`; None, where the request has no transactional id.
        """
        produce = produced.settling
        try:
            if produce.refusal is not None:
                raise produce.refusal
            produced.replica = replica = self._table.find(produced.topic, produced.partition)
            if records is None:
                raise KafkaError(ErrorCode.invalid_record, "there are no records")
            if replica.is_internal:
                raise KafkaError(
                    ErrorCode.invalid_topic_exception, f"{replica}: clients do not write to internal topics"
                )
            leader = replica.require_leader_for_client()
            if produce.acks == ACKS_ALL:
                replica.require_min_isr()
            header = validate_produced(
                records,
                max_message_bytes=replica.settings.log.max_message_bytes,
                produce_version=produce.version,
            )
            if (
                header.attributes & TRANSACTIONAL_BIT
                and transactional is not None
                and header.producer_id >= 0
            ):
                transactional.append(WaitingBatch(produced, replica, leader.leader_epoch, records, header))
                return
            if replica.log.identity_unsynced:
                budget.unsynced.append(
                    WaitingBatch(produced, replica, leader.leader_epoch, bytes(records), header)
                )
                return
            demands = replica.settings.demands(produce.wall_ms, self._max_decompressed_bytes)
            examined = budget.examined(records, header, demands)
            if examined is None:
                batch = WaitingBatch(produced, replica, leader.leader_epoch, bytes(records), header)
                budget.later.append((batch, demands))
                return
            waiting = produced if produce.acks == ACKS_ALL else None
            produced.appended = replica.append(*examined, produce.now_ms, produce.wall_ms, waiting)
        except (KafkaError, OSError) as error:
            produced.refuse(error, 0 if records is None else len(records))

    def _answer(self, body: Any, produce: DelayedProduce, budget: "ExaminationBudget | None") -> Any:
        if budget is not None and budget.unsynced:
            return self._append_synced(body, produce, budget)
        if budget is not None and budget.later:
            return self._append_examined(body, produce, budget)
        if produce.acks == ACKS_ALL:
            for produced in produce.parts:
                if not produced.settled:
                    return produce.until_settled(
                        self._delayed,
                        produce.now_ms + body.timeout // _MILLISECOND,
                        partial(self._response, produce),
                    )
        elif produce.acks == ACKS_NONE:
            partitions, produce.parts = produce.parts, []  # as in `_response`
            for produced in partitions:
                if produced.error_code is not _NONE:
                    # Nothing else can tell this client: it sees the connection end and looks for the leader.
                    raise KafkaError(produced.error_code, f"Produce with acks=0 failed: {produced.message}")
            return NO_RESPONSE
        return self._response(produce)

    def _response(self, produce: DelayedProduce) -> Any:
        """Return the response entity, or the steps in which it is made."""
        if len(produce.parts) > _PARTITIONS_AT_ONCE:
            return self._response_of_many(produce)
        response = _fixed_response(produce) or produce_response(produce, self._table)
        # They hold the request and their replicas; in a circle, the files of a deleted log would stay open.
        produce.parts.clear()
        return response

    async def _response_of_many(self, produce: DelayedProduce) -> Response:
        try:
            return await produce_response_of_many(produce, self._table)
        finally:
            produce.parts.clear()

    # --- requests that take turns, or wait before they append -----------------------------------

    async def _append_many(self, body: Any, produce: DelayedProduce, budget: "ExaminationBudget") -> Response:
        parts = await self._looked_through(body, produce)
        for (topic, partition), records in parts.items():
            self._append(produce.add(topic, partition), records, budget)
            await turn()
        return self._answer(body, produce, budget)

    async def _append_transactional(
        self, body: Any, produce: DelayedProduce, budget: "ExaminationBudget"
    ) -> Response:
        batches: list[WaitingBatch] = []
        parts = await self._looked_through(body, produce)
        for (topic, partition), records in parts.items():
            self._append(produce.add(topic, partition), records, budget, batches)
            await turn()
        verified = await verified_batches(body.transactional_id, produce.version, batches, self._verifier)
        await self._append_in_turn(verified, produce, budget)
        return self._answer(body, produce, budget)

    async def _append_synced(
        self, body: Any, produce: DelayedProduce, budget: "ExaminationBudget"
    ) -> Response:
        """Append the first batches of new logs, once the topic ids of these are on the disk."""
        batches, budget.unsynced = budget.unsynced, []
        await self._append_in_turn(batches, produce, budget)
        return self._answer(body, produce, budget)

    async def _append_in_turn(
        self, batches: Sequence[WaitingBatch], produce: DelayedProduce, budget: "ExaminationBudget"
    ) -> None:
        """Append batches that had to wait, or leave them to a thread."""
        for syncing in [
            self._delayed.run_in_executor(self._disk_threads, _sync_identity, batch.replica.log)
            for batch in batches
            if batch.replica.log.identity_unsynced
        ]:
            await held(syncing)
        for batch in batches:
            produced, replica, _, records, header = batch
            try:
                demands = replica.settings.demands(produce.wall_ms, self._max_decompressed_bytes)
                examined = budget.examined(records, header, demands)
                if examined is None:
                    budget.later.append((batch._replace(records=bytes(records)), demands))
                else:
                    _append_waiting(batch, *examined, self._delayed.now_ms(), self._wall_ms())
            except (KafkaError, OSError) as error:
                produced.refuse(error, len(records))
            await turn()

    async def _looked_through(
        self, body: Any, produce: DelayedProduce
    ) -> dict[tuple[UUID | str | None, int], bytes | memoryview | None]:
        """Return the records of each partition, having looked for a reason to refuse the whole request."""
        parts = _records_of_partitions(body, produce.version)
        producers = TransactionalProducers(body.transactional_id)
        for records in parts.values():
            producers.look(records)
            await turn()
        produce.refusal = produce.refusal or producers.refusal
        return parts

    async def _append_examined(
        self, body: Any, produce: DelayedProduce, budget: "ExaminationBudget"
    ) -> Response:
        """Append the batches that a thread has examined, if they still may be appended, and answer."""
        results = await held(self._delayed.run_in_executor(self._examiners, budget.examine_rest))
        now_ms, wall_ms = self._delayed.now_ms(), self._wall_ms()
        for (batch, _), result in zip(budget.later, results, strict=True):
            try:
                if isinstance(result, KafkaError):
                    raise result
                _append_waiting(batch, *result, now_ms, wall_ms)
            except (KafkaError, OSError) as error:
                batch.produced.refuse(error, len(batch.records))
        return self._answer(body, produce, None)


def _records_of_partitions(
    body: Any, version: int
) -> dict[tuple[UUID | str | None, int], bytes | memoryview | None]:
    """Return the records of each partition by topic and number; the last where a partition occurs twice."""
    by_id = version >= _FIRST_VERSION_BY_ID
    return {
        (topic.topic_id if by_id else topic.name, data.index): data.records
        for topic in body.topic_data
        for data in topic.partition_data
    }


def _fixed_response(produce: DelayedProduce) -> PartitionProduced | None:
    """Return the response to a fixed request that has succeeded; None if it has to be an entity."""
    request = produce.fixed_request
    if request is None:
        return None
    produced = produce.parts[0]
    appended = produced.appended
    if produced.error_code is not _NONE or appended is None:
        return None
    return PartitionProduced(
        request, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _sync_identity(log: Log) -> None:
    with suppress(KafkaError):  # the append fails with it, and takes the replica offline if the disk failed
        log.sync_identity()


def _append_waiting(
    batch: WaitingBatch,
    records: bytes | memoryview,
    header: BatchHeader,
    now_ms: int,
    wall_ms: TimestampMs,
) -> None:
    """Append a batch that had to wait, if this broker still leads in the batch's epoch.

    Raises:
        KafkaError: not_leader_or_follower, or what `Replica.append` raises.
    """
    produced, replica = batch.produced, batch.replica
    if replica.require_leader().leader_epoch != batch.leader_epoch:
        raise KafkaError(
            ErrorCode.not_leader_or_follower,
            f"{replica.topic_partition} got another leader epoch while its records were looked into",
        )
    waiting = produced if produced.settling.acks == ACKS_ALL else None
    produced.appended = replica.append(records, header, now_ms, wall_ms, waiting, produced.verification)


class ExaminationBudget:
    """The budget of one request for examinations on the loop (`examine`), and the batches left to a thread.

    The way to a thread and back takes several times what it takes to walk over the records of a small batch,
    so these are looked into at once: of each request as much as takes about a millisecond.
    """

    __slots__ = (
        "_bytes_left",
        "_max_decompressed_bytes",
        "_plain_bytes_left",
        "_records_left",
        "later",
        "unsynced",
    )

    def __init__(self, max_decompressed_bytes: int) -> None:
        self.later: list[tuple[WaitingBatch, Demands]] = []
        """The batches beyond the budget, for a thread, with records of their own."""
        self.unsynced: list[WaitingBatch] = []
        """The first batches of logs whose topic ids are not on the disk yet."""
        self._max_decompressed_bytes = max_decompressed_bytes
        self._bytes_left = _AT_ONCE_BYTES
        self._plain_bytes_left = _PLAIN_AT_ONCE_BYTES
        self._records_left = _AT_ONCE_RECORDS

    def examined(
        self, records: bytes | memoryview, header: BatchHeader, demands: Demands
    ) -> tuple[bytes | memoryview, BatchHeader] | None:
        """Return a good batch in the form in which it is stored, and its header; None: a thread has to look.

        Raises:
            KafkaError: what `examine` raises.
        """
        self._records_left -= header.record_count
        codec = header.attributes & CODEC_BITS
        if demands.codec is not None and demands.codec != codec:
            return None
        if codec:
            self._bytes_left -= len(records)
            max_bytes = min(self._max_decompressed_bytes, _EXPANDED_AT_ONCE_BYTES)
            small_demands = demands._replace(max_decompressed_bytes=max_bytes, is_hasty=True)
        else:
            self._plain_bytes_left -= len(records)
            small_demands = demands._replace(is_hasty=True)
        if self._bytes_left < 0 or self._plain_bytes_left < 0 or self._records_left < 0:
            return None
        try:
            return examine(records, header, small_demands)
        except (DecompressionLimitError, CostlyWalkError):
            return None  # it may expand to more, or have many headers, but not here

    def examine_rest(self) -> list[tuple[bytes | memoryview, BatchHeader] | KafkaError]:
        """Examine the remaining batches, on a thread; return the stored form or the error of each."""
        results: list[tuple[bytes | memoryview, BatchHeader] | KafkaError] = []
        for batch, demands in self.later:
            try:
                results.append(examine(batch.records, batch.header, demands))
            except KafkaError as error:
                results.append(error)
        return results
