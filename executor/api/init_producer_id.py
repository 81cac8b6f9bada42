"""InitProducerId: ids for idempotent producers, from this broker's blocks."""

import logging
from typing import Final

from executor.control.producer_id_blocks import ProducerIdBlocks
from sparklog.answers.init_producer_id import init_producer_id_response, refusal
from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.requests import Request, Response

__all__ = ["ProducerIdHandler"]

ALLOCATION_TIMEOUT_MS: Final = 10_000

logger = logging.getLogger(__name__)


class ProducerIdHandler:
    """Answers InitProducerId from this broker's blocks of ids."""

    def __init__(self, producer_ids: ProducerIdBlocks) -> None:
        self._producer_ids = producer_ids

    async def handle(self, request: Request) -> Response:
        """Return a new producer id, or why there is none."""
        refused = refusal(request.body)
        if refused is not None:
            return refused
        try:
            producer_id = await self._producer_ids.next(ALLOCATION_TIMEOUT_MS)
        except KafkaError as error:
            logger.warning("No producer id: %s", error)
            # What the controller could not do now it can do later; clients retry this code.
            return init_producer_id_response(ErrorCode.coordinator_load_in_progress)
        return init_producer_id_response(ErrorCode.none, producer_id)
