"""Metadata of all topics: computed once, in steps, and cached as bytes until the image changes.

Many clients request it in turn, all of them after an election, and with ten thousand partitions one response
takes a hundred milliseconds to compute. Responses differ by version, by listener, by the wish for authorized
operations, and by the controller that they name; by nothing else.

Rule: a response is from the image at the time of the request, or from one with the same topics and brokers.
Requests during a computation wait for it.
"""

import asyncio
from collections.abc import Awaitable, Sequence, Set
from typing import Any, Final, NamedTuple

from sparklog.node.metadata.image import EMPTY_IMAGE, BrokerRegistration, MetadataImage
from sparklog.node.responses.metadata import advertised_leaders, metadata_response
from sparklog.node.serving.requests import Response
from sparklog.node.serving.turns import over_turns
from sparklog.protocol.codec.encoded import EncodedBody
from sparklog.protocol.codec.encoder import encode_entity_in_steps
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.codec.versions import downgrade_in_steps
from sparklog.protocol.types import BrokerEpoch, BrokerId

MAX_ANSWERS: Final = 8
"""Limit for cached responses: for clients of as many versions and options at a time."""


class _Key(NamedTuple):
    """Properties by which the responses of one image differ."""

    version: int
    controller_id: BrokerId | None
    just_fenced: tuple[tuple[BrokerId, BrokerEpoch], ...]
    with_operations: bool


class WholeMetadata:
    """The responses to Metadata for all topics at one listener, of the newest requested image."""

    def __init__(self, listener_name: str, *, cluster_id: str) -> None:
        self._listener_name = listener_name
        self._cluster_id = cluster_id
        self._image = EMPTY_IMAGE
        self._leaders: Set[BrokerId] | None = None
        self._answers: dict[_Key, EncodedBody | asyncio.Task[EncodedBody]] = {}

    def advertised_leaders(self, image: MetadataImage, request: Any) -> Set[BrokerId]:
        self._take_in(image)
        if self._leaders is None:
            self._leaders = in_one_go(advertised_leaders(image, request))
        return self._leaders

    def answer(
        self,
        image: MetadataImage,
        request: Any,
        version: int,
        *,
        controller_id: BrokerId | None = None,
        just_fenced: Sequence[BrokerRegistration] = (),
    ) -> EncodedBody | Awaitable[EncodedBody]:
        """Return the response to a MetadataRequest of the newest version, sent as `version`, for all topics.

        The other arguments are those of `metadata_response`.
        """
        self._take_in(image)
        key = _Key(
            version,
            controller_id,
            tuple((broker.broker_id, broker.broker_epoch) for broker in just_fenced),
            request.include_topic_authorized_operations,
        )
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
            steps = self._steps(image, request, key, just_fenced)
            answer = self._answers[key] = asyncio.get_running_loop().create_task(over_turns(steps))
        if isinstance(answer, EncodedBody):
            return answer
        return self._made(self._answers, key, answer)

    async def _made(
        self,
        answers: dict[_Key, EncodedBody | asyncio.Task[EncodedBody]],
        key: _Key,
        making: asyncio.Task[EncodedBody],
    ) -> EncodedBody:
        """Wait for a response that is being computed, which continues even if this client leaves."""
        try:
            made = await asyncio.shield(making)
        except Exception:
            if answers.get(key) is making:
                del answers[key]
            raise
        if answers.get(key) is making:
            answers[key] = made
        return made

    def _take_in(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        if image.topics is not before.topics or image.brokers is not before.brokers:
            self._answers = {}
            self._leaders = None

    async def _steps(
        self, image: MetadataImage, request: Any, key: _Key, just_fenced: Sequence[BrokerRegistration]
    ) -> Response:
        response = await metadata_response(
            image,
            request,
            self._listener_name,
            cluster_id=self._cluster_id,
            controller_id=key.controller_id,
            just_fenced=just_fenced,
            request_version=key.version,
        )
        entity = await downgrade_in_steps(response, key.version)
        chunks: list[Any] = await encode_entity_in_steps(entity)
        return EncodedBody(b"".join(chunks))
