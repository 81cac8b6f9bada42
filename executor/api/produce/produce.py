"""Produce: append what clients send to the partitions led here, and acknowledge as they asked.

The rule of answers stands in `delayed_produce.py`; acks=0 has none. A retry of an idempotent
producer is answered with the offsets it got the first time, under the same rule for acks=all. Versions 3 to
13; from 13 on topics are named by id.

A batch that has to be looked into by a thread (`produce_examination`), or is the first of a transaction whose
coordinator is asked (`transactional_appends`), is appended afterwards if this broker still leads in the same
leader epoch. Nothing more is read from its connection until then, so that no later batch of the same producer
overtakes it; and as a connection has one such request, those that wait are bounded by the connections.
"""

import datetime
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from uuid import UUID

from sparklog.executor.api.produce.delayed_produce import ACKS_ALL, ACKS_NONE, DelayedProduce
from sparklog.executor.api.produce.partition_appends import (
    TransactionalBatch,
    append_failed,
    append_in_epoch,
    append_produced,
    append_verified,
)
from sparklog.executor.api.produce.produce_examination import Examination
from sparklog.executor.api.produce.produce_responses import produce_response, produce_response_of_many
from sparklog.executor.api.produce.transactional_appends import TransactionalProducers, verified_batches
from sparklog.executor.api.services import PartitionServices
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.verification.transaction_verifier import TransactionVerifier
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.serving.requests import NO_RESPONSE, Handler, Request, Response
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TimestampMs

_NONE: Final = ErrorCode.none
_FIRST_VERSION_BY_ID: Final = 13
_PARTITIONS_AT_ONCE: Final = 16
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    replicas = services.replicas
    handler = ProduceHandler(
        replicas.table,
        replicas.delayed,
        replicas.examiners,
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
        verifier: TransactionVerifier,
        *,
        max_decompressed_bytes: int,
        wall_ms: Callable[[], TimestampMs] = wall_clock_ms,
    ) -> None:
        self._table = table
        self._delayed = delayed
        self._examiners = examiners
        self._verifier = verifier
        self._max_decompressed_bytes = max_decompressed_bytes
        self._wall_ms = wall_ms

    def handle(self, request: Request) -> Any:
        """Append, and answer now or once the in-sync replicas have the records."""
        body, version = request.body, request.api_version
        now_ms, wall_ms = self._delayed.now_ms(), self._wall_ms()
        examination = Examination(self._max_decompressed_bytes)
        produce = DelayedProduce(body, version, request.listener_name, now_ms, wall_ms)
        if body.transactional_id is not None:
            return self._append_transactional(body, produce, examination)
        partition_count = 0
        for topic in body.topic_data:
            partition_count += len(topic.partition_data)
        if partition_count > _PARTITIONS_AT_ONCE:
            return self._append_many(body, produce, examination)
        parts = _records_of_partitions(body, version)
        producers = TransactionalProducers(None)
        for records in parts.values():
            producers.look(records)
        produce.refusal = produce.refusal or producers.refusal
        for (topic, partition), records in parts.items():
            append_produced(produce.add(topic, partition), records, self._table, examination)
        return self._answer(body, produce, examination)

    async def _append_many(self, body: Any, produce: DelayedProduce, examination: Examination) -> Response:
        parts = await self._looked_through(body, produce)
        for (topic, partition), records in parts.items():
            append_produced(produce.add(topic, partition), records, self._table, examination)
            await turn()
        return self._answer(body, produce, examination)

    async def _append_transactional(
        self, body: Any, produce: DelayedProduce, examination: Examination
    ) -> Response:
        batches: list[TransactionalBatch] = []
        parts = await self._looked_through(body, produce)
        for (topic, partition), records in parts.items():
            produced = produce.add(topic, partition)
            append_produced(produced, records, self._table, examination, batches)
            await turn()
        verified = await verified_batches(body.transactional_id, produce.version, batches, self._verifier)
        for batch in verified:
            append_verified(batch, examination, self._delayed.now_ms(), self._wall_ms())
            await turn()
        return self._answer(body, produce, examination)

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
        self, body: Any, produce: DelayedProduce, examination: Examination
    ) -> Response:
        """Append the batches that a thread has examined, if they still may be appended, and answer."""
        examined = await held(self._delayed.run_in_executor(self._examiners, examination.run))
        now_ms, wall_ms = self._delayed.now_ms(), self._wall_ms()
        for (produced, replica, leader_epoch, records, *_), result in zip(
            examination.later, examined, strict=True
        ):
            try:
                if isinstance(result, KafkaError):
                    raise result
                append_in_epoch(produced, replica, leader_epoch, *result, now_ms, wall_ms)
            except (KafkaError, OSError) as error:
                append_failed(produced, error, len(records))
        return self._answer(body, produce, None)

    def _answer(self, body: Any, produce: DelayedProduce, examination: Examination | None) -> Any:
        if examination is not None and examination.later:
            return self._append_examined(body, produce, examination)
        if produce.acks == ACKS_ALL:
            for produced in produce.parts:
                if not produced.settled:
                    return self._delayed.until_settled(
                        produce,
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
        response = produce_response(produce, self._table)
        # They hold the request and their replicas; in a circle, the files of a deleted log would stay open.
        produce.parts.clear()
        return response

    async def _response_of_many(self, produce: DelayedProduce) -> Response:
        try:
            return await produce_response_of_many(produce, self._table)
        finally:
            produce.parts.clear()


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
