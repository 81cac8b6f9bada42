"""InitProducerId, versions 0 to 5: assigns a producer id and epoch.

Without a transactional id each request gets a new producer id. With one, its coordinator decides.

Version 6 (KIP-939) is not stable in Kafka 4.3. Its flag says that the producer's transactions await the
decision of an external coordinator for any time. A client here requests this by the time-out that means it in
Kafka's records: 2147483647 ms. It is refused unless transaction.two.phase.commit.enable is set.
"""

import logging
from datetime import timedelta
from typing import Any, Final

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import (
    ALLOCATION_TIMEOUT_MS,
    NewProducerId,
    ask_as_producer,
    older_fencing,
)
from sparklog.executor.coordinators.transactions.machine.events import InitProducer
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.responses.init_producer_id import init_producer_id_response
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.turns import in_task
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_KNOWS_PRODUCER_FENCED: Final = 4
_MILLISECOND: Final = timedelta(milliseconds=1)


class InitProducerIdHandler:
    def __init__(self, coordinators: CoordinatorRuntime, new_producer_id: NewProducerId) -> None:
        self._coordinators = coordinators
        self._new_producer_id = new_producer_id

    async def handle(self, request: Request) -> Response:
        body: Any = request.body
        if body.transactional_id is None:
            return await self._fresh()
        if not body.transactional_id:
            return init_producer_id_response(ErrorCode.invalid_request)
        # Requests before version 3 name no expected producer.
        expected = ProducerStamp(getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1))
        if (expected.producer_id == -1) != (expected.producer_epoch == -1):
            return init_producer_id_response(ErrorCode.invalid_request)
        event = InitProducer(
            body.transactional_id,
            body.transaction_timeout // _MILLISECOND,
            None if expected.producer_id == -1 else expected,
        )
        outcome = await ask_as_producer(
            self._coordinators, TransactionMachine.init_producer, event, self._new_producer_id
        )
        error_code = older_fencing(outcome.error_code, request.api_version, _KNOWS_PRODUCER_FENCED)
        return init_producer_id_response(error_code, *(outcome.producer or ()))

    async def _fresh(self) -> Response:
        try:
            producer_id = await in_task(self._new_producer_id(ALLOCATION_TIMEOUT_MS))
        except KafkaError as error:
            logger.warning("No producer id: %s", error)
            # The controller may succeed later; clients retry this code.
            return init_producer_id_response(ErrorCode.coordinator_load_in_progress)
        return init_producer_id_response(ErrorCode.none, producer_id)
