"""InitProducerId: a fresh id with epoch 0 for an idempotent producer.

As in Kafka, an idempotent producer that asks again gets another id, whatever id it had. A transactional id
is refused for good, so that the client fails at once (see `coordinator`).
"""

import logging
from datetime import timedelta
from typing import Final

from kio.schema.init_producer_id.v5 import InitProducerIdResponse

from executor.producer_ids import ProducerIds
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import ProducerId
from sparklog.wire.requests import Request, Response

__all__ = ["ProducerIdHandler"]

ALLOCATION_TIMEOUT_MS: Final = 10_000

logger = logging.getLogger(__name__)


class ProducerIdHandler:
    """Answers InitProducerId from this broker's blocks of ids."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def handle(self, request: Request) -> Response:
        """Return a new producer id, or why there is none."""
        body = request.body
        if body.transactional_id is not None:
            if not body.transactional_id:
                return _response(ErrorCode.invalid_request)
            return _response(ErrorCode.transactional_id_authorization_failed)
        try:
            return _response(ErrorCode.none, await self._producer_ids.next(ALLOCATION_TIMEOUT_MS))
        except KafkaError as error:
            logger.warning("no producer id: %s", error)
            # What the controller could not do now it can do later; clients retry this code.
            return _response(ErrorCode.coordinator_load_in_progress)


def _response(error_code: ErrorCode, producer_id: ProducerId | None = None) -> Response:
    return InitProducerIdResponse(
        throttle_time=timedelta(0),
        error_code=error_code,
        producer_id=-1 if producer_id is None else producer_id,
        producer_epoch=-1 if producer_id is None else 0,
    )
