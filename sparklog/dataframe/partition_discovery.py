"""Which partitions a streaming query reads, asked anew as it runs: what is new, gone, or made anew.

What an answer lacks is not gone for that: some brokers learn of a topic or a partition later than others. So
what the query has a position in is asked for again, for as long as a topic may be missing
(`unknown_topic_timeout_ms`), before it is given up; what was given up is not waited for again until it is
back.

A topic that was deleted and made anew is told by its id (KIP-516), also if it was gone for a while between.
Ids have no order: another one than before is the new topic's, or the former one's if the broker that was
asked is behind. So it is asked for again as well, and what is told when the wait is over is the topic; no id
is ever ruled out, as the one that is known may be the wrong one. Positions in a topic that was made anew are
the former topic's: it is one of `recreated` until the caller has moved them, and says so by `settle`.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.errors import UnknownTopicError
from sparklog.clocks import monotonic_ms
from sparklog.dataframe.options import Assigned, ReadOptions, Subscribed, Topics
from sparklog.dataframe.resolution import resolve_partitions
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

PARTITIONS_MAX_AGE_MS: Final = 1_000
"""How long a new topic or partition may go unseen."""

TopicId = UUID | None


class _Answer(NamedTuple):
    found: Mapping[TopicPartition, TopicId]
    unknown: Mapping[str, UnknownTopicError]
    """Topics that the options name, and that the broker that was asked does not know."""

    @property
    def ids(self) -> Mapping[str, TopicId]:
        """Each topic's id."""
        return {each.topic: topic_id for each, topic_id in self.found.items()}


class PartitionDiscovery:
    """The partitions of one query's topics."""

    def __init__(self, cluster: ClusterClient, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self.partitions: Mapping[TopicPartition, TopicId] = {}
        """Those that are there, each with its topic's id."""
        self.recreated: Set[str] = frozenset()
        """Topics made anew in which the query's position is still the former topic's."""
        self._ids: dict[str, TopicId] = {}
        """Each topic's id when it was last there."""
        self._given_up: Set[str] = frozenset()
        """Topics that were waited for in vain, or partitions of theirs were."""
        self._asked_ms: int | None = None

    def refresh_if_old(self, position: Collection[TopicPartition]) -> None:
        """Ask anew, as `refresh` does, if that was not done within `PARTITIONS_MAX_AGE_MS`."""
        if self._asked_ms is None or monotonic_ms() - self._asked_ms >= PARTITIONS_MAX_AGE_MS:
            self.refresh(position)

    def refresh(self, position: Collection[TopicPartition] = (), *, is_new_query: bool = False) -> None:
        """Ask anew, and wait a while for partitions of the query's `position` and for topics it names.

        Raises:
            UnknownTopicError: a topic that is named is not there; unless failOnDataLoss is false, when only a
                new query, which cannot have read it, ends for that.
            DataLossError: a topic was made anew, and that shall not pass.
            DataSourceOptionError, KafkaError: as `resolve_partitions` raises them.
        """
        expected = {*self.partitions, *position}
        answer = self._wait_for(expected)
        for name, error in answer.unknown.items():
            if is_new_query or self._options.fail_on_data_loss:
                raise error
            if name not in self._given_up:
                logger.warning("%s; going on without it (failOnDataLoss is false)", error)
        self._note_ids(answer.ids)
        self._given_up = absent_topics(expected, answer.found, answer.unknown)
        self.partitions = answer.found
        self._asked_ms = monotonic_ms()

    def settle(self) -> None:
        """Take in that the query's position is one in the topics that are there now."""
        self.recreated -= {each.topic for each in self.partitions}

    def _note_ids(self, ids: Mapping[str, TopicId]) -> None:
        recreated = recreated_topics(self._ids, ids)
        for topic in sorted(recreated):
            self._options.report_data_loss(
                f"topic {topic} was deleted and created anew: what was not read of the former one is gone"
            )
        self.recreated |= recreated
        self._ids |= ids

    def _wait_for(self, expected: Collection[TopicPartition]) -> _Answer:
        """Return what is there, as soon as all is as it was but for what is new, or a topic's time is up."""

        def ask() -> _Answer:
            answer = self._ask()
            late = absent_topics(expected, answer.found, answer.unknown) - self._given_up
            late |= recreated_topics(self._ids, answer.ids)
            if late:
                raise UnknownTopicError(
                    f"topic {', '.join(sorted(late))}, or a partition of it, or one of the id that is known,",
                    "it is waited for",
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
        # All at first: one request asks for whatever is outdated.
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
    """Return the topics that are `unknown`, and those of which a partition is missing that is `expected`.

    >>> first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> sorted(absent_topics([first, second], [first], ["u"]))
    ['t', 'u']
    """
    return {*unknown, *(each.topic for each in expected if each not in found)}


def recreated_topics(before: Mapping[str, TopicId], now: Mapping[str, TopicId]) -> Set[str]:
    """Return the topics whose id is another one `now`.

    >>> first, second = UUID(int=1), UUID(int=2)
    >>> recreated_topics({"t": first, "u": first, "gone": first}, {"t": second, "u": first, "new": second})
    {'t'}
    """
    return {topic for topic, topic_id in now.items() if topic in before and before[topic] != topic_id}


def _one_by_one(topics: Topics) -> Iterator[tuple[str | None, Topics]]:
    """Part what is named by topic: one that is gone takes no other with it. A pattern names none."""
    if isinstance(topics, Subscribed):
        yield from ((name, Subscribed((name,))) for name in topics.topics)
    elif isinstance(topics, Assigned):
        for name in {each.topic for each in topics.partitions}:
            yield name, Assigned(frozenset(each for each in topics.partitions if each.topic == name))
    else:
        yield None, topics
