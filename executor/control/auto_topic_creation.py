"""Creates topics because a client asked for their metadata (auto.create.topics.enable).

The client is answered at once that the topic is unknown, and asks again; the controller is asked once a
topic however many clients ask meanwhile. Source: Kafka's AutoTopicCreationManager.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest

from executor.control.controller_link import ControllerLink
from sparklog.errors import ErrorCode, KafkaError

__all__ = ["AutoTopicCreation"]

UNSPECIFIED: Final = -1
"""The controller takes num.partitions and default.replication.factor."""
MAX_TOPICS_UNDER_WAY: Final = 1_000
"""A client that asks for ever more names is not served faster than the controller creates them."""

logger = logging.getLogger(__name__)


class AutoTopicCreation:
    """The topics one broker has asked the controller to create; belongs to its event loop."""

    def __init__(self, link: ControllerLink, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, names: Iterable[str]) -> None:
        """Ask for those of the topics that are not asked for yet; returns at once."""
        room = MAX_TOPICS_UNDER_WAY - len(self._under_way)
        new = [name for name in dict.fromkeys(names) if name not in self._under_way][:room]
        if not new:
            return
        self._under_way.update(new)
        task = asyncio.get_running_loop().create_task(self._create(new))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def is_busy(self) -> bool:
        """Whether the controller has been asked for a topic and has not answered."""
        return bool(self._under_way)

    async def close(self) -> None:
        """Forget what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _create(self, names: list[str]) -> None:
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=name,
                    num_partitions=UNSPECIFIED,
                    replication_factor=UNSPECIFIED,
                    assignments=(),
                    configs=(),
                )
                for name in names
            ),
            timeout=timedelta(milliseconds=self._timeout_ms),
        )
        try:
            response: Any = await self._link.request(request, self._timeout_ms)
        except KafkaError as error:
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
            self._under_way.difference_update(names)
