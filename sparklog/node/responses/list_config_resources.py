"""Responses to ListConfigResources: resources with a configuration that can be described.

All topics and brokers are listed, even without dynamic configuration; groups and client metrics only with it.
Version 0 is about client metrics alone.

Source: Kafka's KafkaApis.handleListConfigResources; KIP-1000, KIP-1142.
"""

from collections.abc import Iterable
from typing import Any, Final

from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import ResourceType
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode

_LISTED: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


async def list_config_resources_response(
    image: MetadataImage, request: Any, request_version: int
) -> ListConfigResourcesResponse:
    """Return the response to a ListConfigResourcesRequest of version 1; yield after each resource."""
    if request_version == 0:
        asked: Iterable[int] = (ResourceType.CLIENT_METRICS,)
    else:
        asked = dict.fromkeys(request.resource_types) or _LISTED
    resources = []
    for resource_type in asked:
        await turn()
        if resource_type not in _LISTED:
            return unthrottled(
                ListConfigResourcesResponse, error_code=ErrorCode.unsupported_version, config_resources=()
            )
        for name in _names(image, resource_type):
            resources.append(ConfigResource(resource_name=name, resource_type=resource_type))
            await turn()
    return unthrottled(
        ListConfigResourcesResponse, error_code=ErrorCode.none, config_resources=tuple(resources)
    )


def _names(image: MetadataImage, resource_type: int) -> list[str]:
    match resource_type:
        case ResourceType.TOPIC:
            return sorted(image.topics.by_name)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case _:
            return sorted(name for kind, name in image.configs if kind == resource_type)
