"""Automatic creation of topics on clients' requests: auto.create.topics.enable, and coordinators' topics.

The response says at once that the topic is unknown, and the client retries; the topic is requested once, even
if many clients ask for it meanwhile. Brokers send the request to the controller; the controller does the same
when clients ask it.

Source: Kafka's AutoTopicCreationManager.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest

from sparklog.node.config import BrokerConfig
from sparklog.node.responses.internal_topics import creatable_internal_topic

_UNSPECIFIED: Final = -1
"""The controller uses num.partitions and default.replication.factor."""


class AutoCreatedTopics:
    """Topics that were requested and are not known to exist yet. Pure."""

    def __init__(self, max_under_way: int, config: BrokerConfig) -> None:
        """A client that asks for more than `max_under_way` topics is served as fast as topics are created."""
        self._max_under_way = max_under_way
        self._config = config
        self._timeout = timedelta(milliseconds=config.request_timeout_ms)
        self._under_way: set[str] = set()

    def request_for(self, names: Iterable[str]) -> CreateTopicsRequest | None:
        """Return the creation request for those not requested yet; None if there are none.

        Call `answered` for it, also after an error.
        """
        room = self._max_under_way - len(self._under_way)
        new = [name for name in dict.fromkeys(names) if name not in self._under_way][:room]
        if not new:
            return None
        self._under_way.update(new)
        return CreateTopicsRequest(
            topics=tuple(
                creatable_internal_topic(name, self._config)
                or CreatableTopic(
                    name=name,
                    num_partitions=_UNSPECIFIED,
                    replication_factor=_UNSPECIFIED,
                    assignments=(),
                    configs=(),
                )
                for name in new
            ),
            timeout=self._timeout,
        )

    def answered(self, request: CreateTopicsRequest) -> None:
        """Forget the topics of a request that was answered: they exist, or may be requested again."""
        self._under_way.difference_update(topic.name for topic in request.topics)
