"""DescribeProducers: the producer states of a replica (KIP-664). Version 0.

Kafka's tool finds transactions that hang by it: those that have begun long ago and that no coordinator knows.
It asks leaders, or, for all partitions of one broker, that broker: followers answer as well.
A producer's idle time counts from the append of its last batch here, independent of its records' timestamps;
in Kafka it is their largest timestamp.
Source: Kafka's ReplicaManager.activeProducerState.
"""

from collections.abc import Mapping
from typing import Final

from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from kio.schema.describe_producers.v0.response import ProducerState as ProducerRow

from sparklog.executor.api.services import PartitionServices
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.node.storage.machine.producer_states import ProducerState
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import ProducerId, or_minus_one

_PRODUCERS_A_STEP: Final = 32


def handlers(services: PartitionServices) -> Mapping[ApiKey, Handler]:
    return {ApiKey.DESCRIBE_PRODUCERS: DescribeProducersHandler(services.replicas.table).handle}


class DescribeProducersHandler:
    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    async def handle(self, request: Request) -> Response:
        topics = []
        for topic in request.body.topics:
            rows = []
            for partition in topic.partition_indexes:
                rows.append(await self._partition(topic.name, partition))
                await turn()
            topics.append(TopicResponse(name=topic.name, partitions=tuple(rows)))
            await turn()
        return unthrottled(DescribeProducersResponse, topics=tuple(topics))

    async def _partition(self, topic: str, partition: int) -> Response:
        try:
            replica = self._table.find(topic, partition)
            replica.taking_part()
        except KafkaError as error:
            return PartitionResponse(
                partition_index=partition, error_code=error.error_code, active_producers=()
            )
        return PartitionResponse(
            partition_index=partition,
            error_code=ErrorCode.none,
            active_producers=(await _producers(replica)),
        )


async def _producers(replica: Replica) -> Response:
    rows = []
    for number, (producer_id, state) in enumerate([*replica.log.producers.producers.items()], start=1):
        rows.append(_row(producer_id, state))
        if number % _PRODUCERS_A_STEP == 0:
            await turn()
    return tuple(rows)


def _row(producer_id: ProducerId, state: ProducerState) -> ProducerRow:
    return ProducerRow(
        producer_id=producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else -1,
        last_timestamp=state.last_append_ms,
        coordinator_epoch=or_minus_one(state.coordinator_epoch),
        current_txn_start_offset=or_minus_one(state.transaction_first_offset),
    )
