"""Requests the creation of topics that clients have asked for; see `AutoCreatedTopics`."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.envelope.v0 import EnvelopeRequest

from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.forwarding import envelope
from sparklog.node.apis.parts import MAX_PARTITIONS_PER_REQUEST
from sparklog.node.config import BrokerConfig
from sparklog.node.responses.auto_topic_creation import AutoCreatedTopics
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.frames import LENGTH, decode_response, request_encoder
from sparklog.protocol.errors import ErrorCode, KafkaError

MAX_TOPICS_UNDER_WAY: Final = 1_000

logger = logging.getLogger(__name__)


class AutoTopicCreation:
    def __init__(self, link: ControllerLink, config: BrokerConfig) -> None:
        self._link = link
        self._timeout_ms = config.request_timeout_ms
        self._topics = AutoCreatedTopics(
            config, max_topics=MAX_TOPICS_UNDER_WAY, max_partitions=MAX_PARTITIONS_PER_REQUEST
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, names: Iterable[str], asker: Request | None = None) -> None:
        """Request the topics that are not requested yet; returns at once.

        The request is on behalf of `asker`, whose controller_mutation_rate it counts for (KIP-599).
        """
        request = self._topics.request_for(names)
        if request is not None:
            forwarded = None
            if asker is not None:
                chunks: list[Any] = request_encoder(asker.client_id)(request, 0)
                forwarded = envelope(asker, b"".join(chunks)[LENGTH.size :])
            task = asyncio.get_running_loop().create_task(self._send(request, forwarded))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, request: CreateTopicsRequest, forwarded: EnvelopeRequest | None) -> None:
        try:
            response = await self._link.request(forwarded or request, self._timeout_ms)
            if forwarded is not None:
                if response.error_code is not ErrorCode.none or response.response_data is None:
                    raise KafkaError(response.error_code, "the controller did not open the envelope")
                _, response = decode_response(request, response.response_data)
        except KafkaError as error:
            names = [topic.name for topic in request.topics]
            logger.warning("Topics %s could not be created automatically: %s", names, error)
        else:
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                    logger.warning(
                        "Topic %s could not be created automatically: %s (%s)",
                        topic.name,
                        topic.error_code.name,
                        topic.error_message,
                    )
        finally:
            self._topics.answered(request)
