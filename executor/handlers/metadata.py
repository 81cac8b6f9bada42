"""Metadata: what the image says of brokers and topics, and creation of topics that are asked for in vain."""

from collections.abc import Callable
from typing import Any

from executor.auto_topic_creation import AutoTopicCreation
from sparklog.metadata.image import MetadataImage
from sparklog.metadata.responses import metadata_response, topics_to_create
from sparklog.types import BrokerId
from sparklog.wire.requests import Request, Response
from sparklog.wire.versions import upgrade

__all__ = ["MetadataHandler", "self_if_live"]


class MetadataHandler:
    """Answers Metadata to clients of one listener."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        listener_name: str,
        *,
        cluster_id: str,
        node_id: BrokerId,
        auto_topic_creation: AutoTopicCreation | None,
    ) -> None:
        self._image = image
        self._listener_name = listener_name
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._auto_topic_creation = auto_topic_creation
        """None: auto.create.topics.enable is false."""

    def handle(self, request: Request) -> Response:
        """Answer from the image; topics that are to be created are unknown for now."""
        body: Any = upgrade(request.body)
        image = self._image()
        if self._auto_topic_creation is not None:
            self._auto_topic_creation.create(topics_to_create(image, body))
        return metadata_response(
            image,
            body,
            self._listener_name,
            cluster_id=self._cluster_id,
            controller_id=self_if_live(image, self._node_id),
            request_version=request.api_version,
        )


def self_if_live(image: MetadataImage, node_id: BrokerId) -> BrokerId | None:
    """Return whom clients are to take for the controller: this broker, which forwards, if it is live."""
    registration = image.brokers.get(node_id)
    return None if registration is None or registration.fenced else node_id
