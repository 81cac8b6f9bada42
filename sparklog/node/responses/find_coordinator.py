"""FindCoordinator: the leader of the partition of an internal topic for a key.

If the topic does not exist yet, its creation is requested, and the client retries. There are no coordinators
of share groups; the response is that of a Kafka broker without them.

Source: Kafka's KafkaApis.getCoordinator.
"""

from collections.abc import Callable, Iterable, Set
from typing import Any, Final

from kio.schema.find_coordinator.v3 import FindCoordinatorResponse as SingleFindCoordinatorResponse
from kio.schema.find_coordinator.v6 import FindCoordinatorResponse
from kio.schema.find_coordinator.v6.response import Coordinator

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import (
    COORDINATORS_TOPICS,
    MAX_ID_LENGTH,
    CoordinatorType,
    coordinator_partition,
)
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId

FIRST_BATCHED_VERSION: Final = 4
NO_BROKER: Final = -1

_MESSAGES: Final = {
    ErrorCode.none: None,
    ErrorCode.coordinator_not_available: "The coordinator is not available.",
    ErrorCode.invalid_request: "There is no coordinator of this type in this version, or of so long an id.",
}


async def find_coordinator(
    request: Request,
    image: MetadataImage,
    listener_name: str,
    create_topics: Callable[[Iterable[str]], None],
) -> Response:
    """Return the response with the coordinator of each key, with its endpoint of that listener.

    `create_topics` requests the creation of a coordinator's topic.
    """
    body: Any = request.body
    # Version 0 has groups only.
    key_type = body.key_type if request.api_version > 0 else CoordinatorType.GROUP
    topic = COORDINATORS_TOPICS.get(key_type)
    # A guard has removed all keys of a client without permissions: no topic is created for it.
    asks = request.api_version < FIRST_BATCHED_VERSION or len(body.coordinator_keys) > 0
    if asks and topic is not None and topic not in image.topics.by_name:
        create_topics((topic,))
    if request.api_version < FIRST_BATCHED_VERSION:
        found = _coordinator(body.key, topic, image, listener_name)
        return unthrottled(
            SingleFindCoordinatorResponse,
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    coordinators = []
    for key in body.coordinator_keys:
        await turn()
        coordinators.append(_coordinator(key, topic, image, listener_name))
    return unthrottled(FindCoordinatorResponse, coordinators=tuple(coordinators))


async def advertised_coordinators(request: Request, image: MetadataImage) -> Set[BrokerId]:
    """Return the brokers in the response; a step for each key."""
    body: Any = request.body
    topic = COORDINATORS_TOPICS.get(body.key_type if request.api_version > 0 else CoordinatorType.GROUP)
    leaders: set[BrokerId] = set()
    if topic is not None:
        keys = (body.key,) if request.api_version < FIRST_BATCHED_VERSION else body.coordinator_keys
        for key in keys:
            await turn()
            leader = _leader(key, topic, image)
            leaders |= set() if leader is None else {leader}
    return leaders


def _leader(key: str, topic: str, image: MetadataImage) -> BrokerId | None:
    found = coordinator_partition(image, topic, key) if len(key) <= MAX_ID_LENGTH else None
    return None if found is None else found[1].leader


def _coordinator(key: str, topic: str | None, image: MetadataImage, listener_name: str) -> Coordinator:
    if topic is None or len(key) > MAX_ID_LENGTH:
        return _nobody(key, ErrorCode.invalid_request)
    leader = _leader(key, topic, image)
    broker = None if leader is None else image.brokers.get(leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoint(listener_name)
    if leader is not None and endpoint is not None:
        return Coordinator(
            key=key,
            node_id=leader,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.none,
            error_message=None,
        )
    return _nobody(key, ErrorCode.coordinator_not_available)


def _nobody(key: str, error_code: ErrorCode) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=NO_BROKER,
        host="",
        port=-1,
        error_code=error_code,
        error_message=_MESSAGES[error_code],
    )
