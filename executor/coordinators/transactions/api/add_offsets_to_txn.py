"""AddOffsetsToTxn, versions 0 to 4: adds the partition of a group's offsets to a transaction.

Source: Kafka's KafkaApis.handleAddOffsetsToTxnRequest.
"""

from collections.abc import Callable
from typing import Any, Final

from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import older_fencing
from sparklog.executor.coordinators.transactions.machine.events import AddPartitions
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicPartition

_KNOWS_PRODUCER_FENCED: Final = 2


class AddOffsetsToTxnHandler:
    def __init__(self, coordinators: CoordinatorRuntime, offsets_partition_for: Callable[[str], int]) -> None:
        """`offsets_partition_for` returns the partition of a group's offsets, whether it exists or not."""
        self._coordinators = coordinators
        self._offsets_partition_for = offsets_partition_for

    async def handle(self, request: Request) -> Response:
        body: Any = request.body
        error_code = ErrorCode.invalid_request
        if body.transactional_id:
            partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, self._offsets_partition_for(body.group_id))
            producer = ProducerStamp(body.producer_id, body.producer_epoch)
            event = AddPartitions(body.transactional_id, producer, frozenset((partition,)), 0)
            error_code = await self._coordinators.submit(
                event.transactional_id, TransactionMachine.add_partitions, lambda refused: refused, event
            )
        return unthrottled(
            AddOffsetsToTxnResponse,
            error_code=older_fencing(error_code, request.api_version, _KNOWS_PRODUCER_FENCED),
        )
