"""Discovery of a streaming query's partitions while it runs: new, deleted, and created again.

A topic or partition that an answer lacks is not gone yet: some brokers learn of it later than others. So
partitions in the query's position are asked for again, for as long as a topic may be missing
(`unknown_topic_timeout_ms`), before they are given up; those are not waited for again until they are back.

A topic that was deleted and created again is recognised by its id (KIP-516), even if it was missing in
between. Ids have no order: a different one belongs to the new topic, or to the old one if the answering
broker lags behind. So it is asked for again as well, and the answer at the end of the wait counts; no id is
ever excluded, since the known one may be the outdated one. Positions in a topic that was created again are
the old topic's: it stays in `recreated` until the caller has moved them and calls `settle`.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.errors import UnknownTopicError
from sparklog.user.dataframe.options import Assigned, ReadOptions, Subscribed, Topics
from sparklog.user.dataframe.resolution import resolve_partitions

logger = logging.getLogger(__name__)

PARTITIONS_MAX_AGE_MS: Final = 1_000
"""Longest time for which a new topic or partition goes unnoticed."""

TopicId = UUID | None


class _Answer(NamedTuple):
    found: Mapping[TopicPartition, TopicId]
    unknown: Mapping[str, UnknownTopicError]
    """Topics in the options that the answering broker does not know."""

    @property
    def ids(self) -> Mapping[str, TopicId]:
        return {each.topic: topic_id for each, topic_id in self.found.items()}


class PartitionDiscovery:
    def __init__(self, cluster: ClusterClient, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self.partitions: Mapping[TopicPartition, TopicId] = {}
        """Existing partitions with their topics' ids."""
        self.recreated: Set[str] = frozenset()
        """Topics created again in which the query's position is still the old topic's."""
        self._ids: dict[str, TopicId] = {}
        self._given_up: Set[str] = frozenset()
        """Topics that were waited for in vain, or partitions of theirs."""
        self._asked_ms: int | None = None

    def refresh_if_old(self, position: Collection[TopicPartition]) -> None:
        """Call `refresh` unless it was called within `PARTITIONS_MAX_AGE_MS`."""
        if self._asked_ms is None or monotonic_ms() - self._asked_ms >= PARTITIONS_MAX_AGE_MS:
            self.refresh(position)

    def refresh(self, position: Collection[TopicPartition] = (), *, is_new_query: bool = False) -> None:
        """Ask a broker; wait a while for partitions of the query's `position` and topics in the options.

        Raises:
            UnknownTopicError: a named topic does not exist; unless failOnDataLoss is false, when only a new
                query, which cannot have read it, fails.
            DataLossError: a topic was created again, and failOnDataLoss is true.
            DataSourceOptionError, KafkaError: as `resolve_partitions` raises them.
        """
        expected = {*self.partitions, *position}
        answer = self._wait_for(expected)
        for name, error in answer.unknown.items():
            if is_new_query or self._options.fail_on_data_loss:
                raise error
            if name not in self._given_up:
                logger.warning("%s; continuing without it (failOnDataLoss is false)", error)
        self._note_ids(answer.ids)
        self._given_up = absent_topics(expected, answer.found, answer.unknown)
        self.partitions = answer.found
        self._asked_ms = monotonic_ms()

    def settle(self) -> None:
        """Record that the query's position is in the existing topics."""
        self.recreated -= {each.topic for each in self.partitions}

    def _note_ids(self, ids: Mapping[str, TopicId]) -> None:
        recreated = recreated_topics(self._ids, ids)
        for topic in sorted(recreated):
            self._options.report_data_loss(
                f"topic {topic} was deleted and created again: unread records of the former one are gone"
            )
        self.recreated |= recreated
        self._ids |= ids

    def _wait_for(self, expected: Collection[TopicPartition]) -> _Answer:
        """Return the answer, once it lacks no expected partition, or after the wait."""

        def ask() -> _Answer:
            answer = self._ask()
            late = absent_topics(expected, answer.found, answer.unknown) - self._given_up
            late |= recreated_topics(self._ids, answer.ids)
            if late:
                raise UnknownTopicError(
                    f"topic {', '.join(sorted(late))}, or a partition of it, or one with the known id,",
                    "it may appear later",
                )
            return answer

        try:
            return self._cluster.retry("finding the topics to read", ask)
        except UnknownTopicError:
            return self._ask()

    def _ask(self) -> _Answer:
        found: dict[TopicPartition, TopicId] = {}
        unknown: dict[str, UnknownTopicError] = {}
        parts = list(_one_by_one(self._options.topics))
        # All at first: one request refreshes all outdated topics.
        for name, _ in parts:
            if name is not None:
                self._cluster.forget(name)
        for name, topics in parts:
            try:
                found |= resolve_partitions(self._cluster, topics, timeout_ms=0)
            except UnknownTopicError as error:
                if name is None:
                    raise
                unknown[name] = error
        return _Answer(found, unknown)


def absent_topics(
    expected: Collection[TopicPartition],
    found: Collection[TopicPartition],
    unknown: Collection[str],
) -> Set[str]:
    """Return the topics that are `unknown`, and those that lack an `expected` partition.

    >>> first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> sorted(absent_topics([first, second], [first], ["u"]))
    ['t', 'u']
    """
    return {*unknown, *(each.topic for each in expected if each not in found)}


def recreated_topics(before: Mapping[str, TopicId], now: Mapping[str, TopicId]) -> Set[str]:
    """Return the topics whose id has changed.

    >>> first, second = UUID(int=1), UUID(int=2)
    >>> recreated_topics({"t": first, "u": first, "gone": first}, {"t": second, "u": first, "new": second})
    {'t'}
    """
    return {topic for topic, topic_id in now.items() if topic in before and before[topic] != topic_id}


def _one_by_one(topics: Topics) -> Iterator[tuple[str | None, Topics]]:
    """Split topics by name, so that a missing one does not affect the others. A pattern has no names."""
    if isinstance(topics, Subscribed):
        yield from ((name, Subscribed((name,))) for name in topics.topics)
    elif isinstance(topics, Assigned):
        for name in {each.topic for each in topics.partitions}:
            yield name, Assigned(frozenset(each for each in topics.partitions if each.topic == name))
    else:
        yield None, topics
