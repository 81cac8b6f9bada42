"""Metadata: the image's brokers and topics, and automatic creation of missing topics.

A client that asks in the middle of its work most likely asks because it has lost a leader, and it does so
while this broker and the controller are about to notice the same. Such an answer waits `SETTLE_MS` for this
broker's own connections to tell, and then for as long as a leader that it names is suspected of being lost
(`suspected_brokers`). A client that has just connected does not wait to no purpose: it is starting.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Set
from typing import Any, Final

from sparklog.executor.api.services import BrokerServices
from sparklog.executor.control.auto_topic_creation import AutoTopicCreation
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.node.apis.cluster import METADATA, unnamed_topics
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import are_topics_named
from sparklog.node.responses.metadata import advertised_leaders, metadata_response, topics_to_create
from sparklog.node.responses.reachability import is_any_live
from sparklog.node.responses.whole_metadata import WholeMetadata
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.turns import in_task, over_turns
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.types import BrokerId

SETTLE_MS: Final = 10
"""A dying process closes its connections one after the other, and wakes those at their other ends."""
NEW_CONNECTION_MS: Final = 100


def settle_ms(
    suspicions: BrokerSuspicions, request: Request, leaders: Set[BrokerId], node_id: BrokerId
) -> int:
    """Return how long this broker waits for its own connections to show that a leader is lost."""
    is_new = suspicions.now_ms() - request.connection.accepted_ms < NEW_CONNECTION_MS
    return 0 if is_new or leaders <= {node_id} else SETTLE_MS


def handlers(services: BrokerServices) -> Mapping[ApiKey, Handler]:
    creates_topics = services.config.auto_create_topics_enable
    metadata = MetadataHandler(
        services.image,
        cluster_id=services.cluster_id,
        node_id=services.node_id,
        suspicions=services.suspicions,
        auto_topic_creation=services.senders.topic_creation if creates_topics else None,
    )
    return {ApiKey.METADATA: metadata.handle}


class MetadataHandler:
    """The handler of Metadata; addresses are those of the request's listener."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        cluster_id: str,
        node_id: BrokerId,
        suspicions: BrokerSuspicions,
        auto_topic_creation: AutoTopicCreation | None,
    ) -> None:
        self._image = image
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._suspicions = suspicions
        self._auto_topic_creation = auto_topic_creation
        """None: auto.create.topics.enable is false."""
        self._whole: dict[str, WholeMetadata] = {}
        """By listener."""

    async def handle(self, request: Request) -> Response:
        """Answer from the image; topics to be created are unknown in this answer."""
        body: Any = await upgrade_in_steps(request.body)
        if not are_topics_named(body.topics, request.api_version):
            return await METADATA.refused(body, unnamed_topics())
        if self._auto_topic_creation is not None:
            self._auto_topic_creation.create((await topics_to_create(self._image(), body)), request)
        leaders = await self._advertised_leaders(request, body)
        wait_ms = settle_ms(self._suspicions, request, leaders, self._node_id)
        if not is_any_live(self._image()):
            return await self._answer_when_any_is_live(request, body)
        if wait_ms or self._suspicions.is_any_suspected(leaders):
            return await self._answer_when_sure(request, body, wait_ms)
        return await self._answer(request, body)

    async def _answer_when_sure(self, request: Request, body: Any, wait_ms: int) -> Response:
        await asyncio.sleep(wait_ms / 1000)
        unsuspected = self._suspicions.until_none_is_suspected(
            lambda: over_turns(self._advertised_leaders(request, body))
        )
        await in_task(unsuspected)
        return await self._answer(request, body)

    async def _answer_when_any_is_live(self, request: Request, body: Any) -> Response:
        """Wait for a broker that is not fenced: in a first image all brokers may still be."""
        await self._suspicions.until(lambda: is_any_live(self._image()))
        return await self._answer(request, body)

    def _whole_of(self, listener_name: str) -> WholeMetadata:
        if listener_name not in self._whole:
            self._whole[listener_name] = WholeMetadata(listener_name, cluster_id=self._cluster_id)
        return self._whole[listener_name]

    async def _advertised_leaders(self, request: Request, body: Any) -> Set[BrokerId]:
        if body.topics is None:
            return self._whole_of(request.listener_name).advertised_leaders(self._image(), body)
        return await advertised_leaders(self._image(), body)

    async def _answer(self, request: Request, body: Any) -> Response:
        image = self._image()
        asked: Set[Hashable] = (
            image.topics.by_name.keys()
            if body.topics is None
            else {topic.name or topic.topic_id for topic in body.topics}
        )
        controller_id = advertised_controller(image, self._node_id)
        just_fenced = self._suspicions.just_fenced(request.connection, asked)
        if body.topics is None:
            return self._whole_of(request.listener_name).answer(
                image, body, request.api_version, controller_id=controller_id, just_fenced=just_fenced
            )
        return await metadata_response(
            image,
            body,
            request.listener_name,
            cluster_id=self._cluster_id,
            controller_id=controller_id,
            just_fenced=just_fenced,
            request_version=request.api_version,
        )


def advertised_controller(image: MetadataImage, node_id: BrokerId) -> BrokerId | None:
    """Return the controller's id for clients: this broker, which forwards, or a live one."""
    live = [broker_id for broker_id, registration in image.brokers.items() if not registration.fenced]
    return node_id if node_id in live else min(live, default=None)
