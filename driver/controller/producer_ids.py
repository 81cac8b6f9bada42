"""Producer ids in blocks: a broker gets a thousand at a time and hands them out itself (KIP-730)."""

from datetime import timedelta
from typing import Final

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse

from driver.controller.cluster import Cluster
from driver.controller.decision import Decision
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.schemas import ProducerIdsRecord

__all__ = ["PRODUCER_ID_BLOCK_SIZE", "allocate_producer_ids"]

PRODUCER_ID_BLOCK_SIZE: Final = 1_000
_LAST_PRODUCER_ID: Final = 2**63 - 1


def allocate_producer_ids(cluster: Cluster, request: AllocateProducerIdsRequest) -> Decision:
    """Answer AllocateProducerIds."""
    start = cluster.image.next_producer_id
    try:
        cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        if start > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
            raise KafkaError(ErrorCode.unknown_server_error, "all producer ids have been handed out")
    except KafkaError as error:
        return Decision([], _allocated(error.error_code, 0, 0))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
    )
    return Decision([record], _allocated(ErrorCode.none, start, PRODUCER_ID_BLOCK_SIZE))


def _allocated(error_code: ErrorCode, start: int, length: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time=timedelta(), error_code=error_code, producer_id_start=start, producer_id_len=length
    )
