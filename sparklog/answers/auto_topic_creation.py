"""Topics that are created because clients asked: for their metadata (auto.create.topics.enable), or for a
coordinator, whose own topic it is then.

A client is answered at once that the topic is unknown, and asks again; the topic is asked for once, however
many clients ask meanwhile. Brokers ask the controller, and the controller, asked itself, does likewise.

Source: Kafka's AutoTopicCreationManager.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest

from sparklog.answers.internal_topics import creatable_internal_topic
from sparklog.config import BrokerConfig

_UNSPECIFIED: Final = -1
"""The controller takes num.partitions and default.replication.factor."""


class AutoCreatedTopics:
    """The topics that have been asked for and are not known to be there. Pure."""

    def __init__(self, max_under_way: int, config: BrokerConfig) -> None:
        """A client that asks for more than `max_under_way` is served no faster than topics are created."""
        self._max_under_way = max_under_way
        self._config = config
        self._timeout = timedelta(milliseconds=config.request_timeout_ms)
        self._under_way: set[str] = set()

    def request_for(self, names: Iterable[str]) -> CreateTopicsRequest | None:
        """Return the request for those that are not asked for yet; None if there are none.

        `answered` is to be called for it, whatever the answer is.
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
        """The topics of `request` are there, or may be asked for again."""
        self._under_way.difference_update(topic.name for topic in request.topics)
