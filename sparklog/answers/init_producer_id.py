"""InitProducerId's answers: a fresh id with epoch 0 for an idempotent producer, or why there is none.

As in Kafka, an idempotent producer that asks again gets another id, whatever id it had. A transactional id
is refused for good, so that the client fails at once (see `find_coordinator`).
"""

from typing import Any

from kio.schema.init_producer_id.v5 import InitProducerIdResponse

from sparklog.errors import ErrorCode
from sparklog.types import ProducerId, or_minus_one
from sparklog.wire.throttling import unthrottled

__all__ = ["init_producer_id_response", "refusal"]


def refusal(request: Any) -> InitProducerIdResponse | None:
    """Return why `request`, of any version, can't be granted; `None` if it can."""
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return init_producer_id_response(ErrorCode.invalid_request)
    return init_producer_id_response(ErrorCode.transactional_id_authorization_failed)


def init_producer_id_response(
    error_code: ErrorCode, producer_id: ProducerId | None = None
) -> InitProducerIdResponse:
    """Return an answer with a new id, or with none."""
    return unthrottled(
        InitProducerIdResponse,
        error_code=error_code,
        producer_id=or_minus_one(producer_id),
        producer_epoch=-1 if producer_id is None else 0,
    )
