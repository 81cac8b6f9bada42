"""Responses to DescribeCluster.

A pure function of an image and a request. Source: Kafka's KafkaApis; KIP-430, KIP-700, KIP-919.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.responses.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_OMITTED
from sparklog.node.responses.reachability import brokers_with, live_brokers
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, or_minus_one

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


class ControllerNode(NamedTuple):
    controller_id: int
    endpoint: Endpoint


def describe_cluster_response(
    image: MetadataImage,
    request: Any,
    listener_name: str,
    *,
    cluster_id: str,
    controller_id: BrokerId | None = None,
    controllers: Sequence[ControllerNode] = (),
) -> DescribeClusterResponse:
    """Return the response to a DescribeClusterRequest of version 2.

    Only a node that knows the controllers (`controllers`), which is a controller, describes them. An error
    response has the schema's defaults.
    """
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        return _refusal(
            ErrorCode.unsupported_endpoint_type,
            f"endpoint type {request.endpoint_type}; 1 is brokers, 2 is controllers",
        )
    if request.endpoint_type == _CONTROLLERS and not controllers:
        return _refusal(
            ErrorCode.mismatched_endpoint_type,
            "this is a broker; controllers are described by controllers",
        )
    if request.endpoint_type == _BROKERS:
        nodes = tuple(
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker, endpoint in brokers_with(image, listener_name)
            if request.include_fenced_brokers or not broker.fenced
        )
        if controller_id is None:
            live = next(live_brokers(image, listener_name), None)
            controller_id = None if live is None else live[0].broker_id
    else:
        nodes = tuple(
            DescribeClusterBroker(
                broker_id=controller.controller_id,
                host=controller.endpoint.host,
                port=controller.endpoint.port,
                rack=None,
                is_fenced=False,
            )
            for controller in controllers
        )
        if controller_id is None:
            controller_id = controllers[0].controller_id
    asked = request.include_cluster_authorized_operations
    return unthrottled(
        DescribeClusterResponse,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=or_minus_one(controller_id),
        brokers=nodes,
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_OMITTED,
    )


def _refusal(error_code: ErrorCode, message: str) -> DescribeClusterResponse:
    return unthrottled(
        DescribeClusterResponse, error_code=error_code, error_message=message, cluster_id="", brokers=()
    )
