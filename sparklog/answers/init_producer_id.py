"""InitProducerId's answers: a producer id and an epoch, or why there is none.

As in Kafka, an idempotent producer that asks again gets another id, whatever id it had. Who has a
transactional id asks its coordinator, which is a broker.
"""

from typing import Any

from kio.schema.init_producer_id.v5 import InitProducerIdResponse

from sparklog.errors import ErrorCode
from sparklog.types import ProducerEpoch, ProducerId, or_minus_one
from sparklog.wire.throttling import unthrottled


def refusal(request: Any) -> InitProducerIdResponse | None:
    """Return why `request`, of any version, is granted by no coordinator; `None` if it can be without one."""
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return init_producer_id_response(ErrorCode.invalid_request)
    return init_producer_id_response(ErrorCode.not_coordinator)


def init_producer_id_response(
    error_code: ErrorCode, producer_id: ProducerId | None = None, producer_epoch: ProducerEpoch = 0
) -> InitProducerIdResponse:
    """Return an answer with an id and an epoch, or with none."""
    return unthrottled(
        InitProducerIdResponse,
        error_code=error_code,
        producer_id=or_minus_one(producer_id),
        producer_epoch=-1 if producer_id is None else producer_epoch,
    )
