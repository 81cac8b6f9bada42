"""FindCoordinator, versions 0 to 6: the leader of the partition of a group or a transactional id.

A client that has lost its coordinator may be the first to notice that. As with Metadata (`metadata`) the
answer then waits until this broker knows the new leader: a client that gets the dead one again retries only
after a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from sparklog.executor.api.metadata import settle_ms
from sparklog.executor.api.services import BrokerServices
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.responses.find_coordinator import advertised_coordinators, find_coordinator
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.node.serving.turns import in_task, over_turns
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.types import BrokerId


def handlers(services: BrokerServices) -> Mapping[ApiKey, Handler]:
    find_coordinator_handler = FindCoordinatorHandler(
        services.image,
        node_id=services.node_id,
        suspicions=services.suspicions,
        create_topics=services.senders.topic_creation.create,
    )
    return {ApiKey.FIND_COORDINATOR: find_coordinator_handler.handle}


class FindCoordinatorHandler:
    """The handler of FindCoordinator; addresses are those of the request's listener."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        node_id: BrokerId,
        suspicions: BrokerSuspicions,
        create_topics: Callable[[Iterable[str]], None],
    ) -> None:
        self._image = image
        self._node_id = node_id
        self._suspicions = suspicions
        self._create_topics = create_topics

    async def handle(self, request: Request) -> Response:
        """Answer from the image once no coordinator in the answer is suspected of being lost."""
        leaders = await advertised_coordinators(request, self._image())
        wait_ms = settle_ms(self._suspicions, request, leaders, self._node_id)
        if wait_ms or self._suspicions.is_any_suspected(leaders):
            return await self._answer_when_sure(request, wait_ms)
        return await self._answer(request)

    async def _answer_when_sure(self, request: Request, wait_ms: int) -> Response:
        await asyncio.sleep(wait_ms / 1000)
        unsuspected = self._suspicions.until_none_is_suspected(
            lambda: over_turns(advertised_coordinators(request, self._image()))
        )
        await in_task(unsuspected)
        return await self._answer(request)

    def _answer(self, request: Request) -> Awaitable[Response]:
        return find_coordinator(request, self._image(), request.listener_name, self._create_topics)
