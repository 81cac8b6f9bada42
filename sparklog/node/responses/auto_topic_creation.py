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

    def __init__(self, config: BrokerConfig, *, max_topics: int, max_partitions: int) -> None:
        """So many topics and partitions are under way at a time, but one topic in any case.

        A client that asks for more is served as fast as topics are created.
        """
        self._config = config
        self._max_topics = max_topics
        self._max_partitions = max_partitions
        self._timeout = timedelta(milliseconds=config.request_timeout_ms)
        self._under_way: dict[str, int] = {}
        """The number of partitions of each."""

    def request_for(self, names: Iterable[str]) -> CreateTopicsRequest | None:
        """Return the creation request for those not requested yet; None if there are none.

        Call `answered` for it, also after an error.
        """
        new: list[CreatableTopic] = []
        partitions = sum(self._under_way.values())
        for name in names:
            if name in self._under_way:
                continue
            topic = self._creatable(name)
            count = (
                self._config.num_partitions if topic.num_partitions == _UNSPECIFIED else topic.num_partitions
            )
            partitions += count
            is_full = len(self._under_way) >= self._max_topics or partitions > self._max_partitions
            if self._under_way and is_full:
                break
            self._under_way[name] = count
            new.append(topic)
        return CreateTopicsRequest(topics=tuple(new), timeout=self._timeout) if new else None

    def _creatable(self, name: str) -> CreatableTopic:
        return creatable_internal_topic(name, self._config) or CreatableTopic(
            name=name,
            num_partitions=_UNSPECIFIED,
            replication_factor=_UNSPECIFIED,
            assignments=(),
            configs=(),
        )

    def answered(self, request: CreateTopicsRequest) -> None:
        """Forget the topics of a request that was answered: they exist, or may be requested again."""
        for topic in request.topics:
            self._under_way.pop(topic.name, None)
