"""EndTxn, versions 0 to 5: commit or abort. From version 5 on the client speaks version 2 of transactions.

Such a client gets its next epoch in the response, which is sent when the decision is committed, before the
partitions have their markers.

Source: Kafka's KafkaApis.handleEndTxnRequest.
"""

from typing import Any, Final

from kio.schema.end_txn.v5.response import EndTxnResponse

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import (
    NewProducerId,
    ask_as_producer,
    older_fencing,
)
from sparklog.executor.coordinators.transactions.machine.events import EndTransaction, ProducerOutcome
from sparklog.executor.coordinators.transactions.machine.metadata import EPOCH_BUMP_VERSION
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode

_KNOWS_PRODUCER_FENCED: Final = 2
_BUMPS_EPOCH: Final = 5
_NOBODY: Final = ProducerStamp(-1, -1)


class EndTxnHandler:
    def __init__(self, coordinators: CoordinatorRuntime, new_producer_id: NewProducerId) -> None:
        self._coordinators = coordinators
        self._new_producer_id = new_producer_id

    async def handle(self, request: Request) -> Response:
        body: Any = request.body
        if not body.transactional_id:
            return _response(ProducerOutcome(ErrorCode.invalid_request), request.api_version)
        event = EndTransaction(
            body.transactional_id,
            ProducerStamp(body.producer_id, body.producer_epoch),
            body.committed,
            EPOCH_BUMP_VERSION if request.api_version >= _BUMPS_EPOCH else 0,
        )
        outcome = await ask_as_producer(
            self._coordinators, TransactionMachine.end, event, self._new_producer_id
        )
        return _response(outcome, request.api_version)


def _response(outcome: ProducerOutcome, api_version: int) -> EndTxnResponse:
    producer = outcome.producer or _NOBODY
    return unthrottled(
        EndTxnResponse,
        error_code=older_fencing(outcome.error_code, api_version, _KNOWS_PRODUCER_FENCED),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
