"""Producer ids: a broker gets a block of a thousand and hands them out itself (KIP-730).

The controller's own listener is a client's first address, and Java clients ask it for their producer id
too; it allocates those one by one, each a record, which a producer asks for once in its life.
"""

from typing import Final

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID, ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.metadata.schemas import ProducerIdsRecord
from sparklog.node.responses.init_producer_id import init_producer_id_response, refusal
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

PRODUCER_ID_BLOCK_SIZE: Final = 1_000
_LAST_PRODUCER_ID: Final = 2**63 - 1
NO_BROKER_EPOCH: Final = -1
"""The record's broker epoch for ids that the controller itself allocates."""


def allocate_producer_ids(cluster: ClusterState, request: AllocateProducerIdsRequest) -> ControllerResult:
    start = cluster.image.next_producer_id
    try:
        cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        if start > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
            raise KafkaError(ErrorCode.unknown_server_error, "all producer ids have been handed out")
    except KafkaError as error:
        return ControllerResult([], _allocated(error.error_code, 0, 0))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
    )
    return ControllerResult([record], _allocated(ErrorCode.none, start, PRODUCER_ID_BLOCK_SIZE))


def init_producer_id(cluster: ClusterState, request: InitProducerIdRequest) -> ControllerResult:
    refused = refusal(request)
    if refused is not None:
        return ControllerResult([], refused)
    producer_id = cluster.image.next_producer_id
    if producer_id == _LAST_PRODUCER_ID:
        return ControllerResult([], init_producer_id_response(ErrorCode.unknown_server_error))
    record = ProducerIdsRecord(
        broker_id=CONTROLLER_ID, broker_epoch=NO_BROKER_EPOCH, next_producer_id=producer_id + 1
    )
    return ControllerResult([record], init_producer_id_response(ErrorCode.none, producer_id))


def _allocated(error_code: ErrorCode, start: int, length: int) -> AllocateProducerIdsResponse:
    return unthrottled(
        AllocateProducerIdsResponse, error_code=error_code, producer_id_start=start, producer_id_len=length
    )
