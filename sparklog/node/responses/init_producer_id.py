"""Responses to InitProducerId: a producer id and epoch, or an error.

As in Kafka, an idempotent producer that asks again gets another id, regardless of its previous one. A
producer with a transactional id has to ask its coordinator, which is a broker.
"""

from typing import Any

from kio.schema.init_producer_id.v5 import InitProducerIdResponse

from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import ProducerEpoch, ProducerId, or_minus_one


def refusal(request: Any) -> InitProducerIdResponse | None:
    """Return the error response to `request`, of any version, if it needs a coordinator; else `None`."""
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return init_producer_id_response(ErrorCode.invalid_request)
    return init_producer_id_response(ErrorCode.not_coordinator)


def init_producer_id_response(
    error_code: ErrorCode, producer_id: ProducerId | None = None, producer_epoch: ProducerEpoch = 0
) -> InitProducerIdResponse:
    return unthrottled(
        InitProducerIdResponse,
        error_code=error_code,
        producer_id=or_minus_one(producer_id),
        producer_epoch=-1 if producer_id is None else producer_epoch,
    )
