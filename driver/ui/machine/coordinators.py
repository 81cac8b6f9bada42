"""The brokers that coordinate groups or transactions: the leaders of the partitions of an internal topic."""

from collections.abc import Mapping
from typing import NamedTuple

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import partition_for
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId, TopicPartition


class CoordinatingBrokers(NamedTuple):
    """The coordinators, and the number of partitions of the topic without a leader."""

    topic: str
    brokers: frozenset[BrokerId]
    leaderless: int


def coordinators(image: MetadataImage, topic: str) -> CoordinatingBrokers:
    """Return the coordinators of an internal topic; none before it exists."""
    found = image.topics.by_name.get(topic)
    leaders = [] if found is None else [each.leader for each in found.partitions.values()]
    return CoordinatingBrokers(
        topic, frozenset(each for each in leaders if each is not None), leaders.count(None)
    )


def coordinator_of(image: MetadataImage, topic: str, name: str) -> BrokerId | None:
    """Return the coordinator of a group or of a transactional id; None while it has none."""
    found = image.topics.by_name.get(topic)
    if found is None:
        return None
    return found.partitions[partition_for(name, len(found.partitions))].leader


def leader_of(image: MetadataImage, topic_partition: TopicPartition) -> BrokerId | None:
    topic = image.topics.by_name.get(topic_partition.topic)
    partition = None if topic is None else topic.partitions.get(topic_partition.partition)
    return None if partition is None else partition.leader


def missing(asked: CoordinatingBrokers, failures: Mapping[BrokerId, KafkaError]) -> str | None:
    """Return what is missing from a list of all coordinators' answers; None if nothing is.

    >>> missing(CoordinatingBrokers("__consumer_offsets", frozenset({1}), 2), {})
    'Not all are here: 2 partitions of __consumer_offsets have no leader.'
    """
    reasons = []
    if asked.leaderless:
        reasons.append(f"{asked.leaderless} partitions of {asked.topic} have no leader")
    reasons += [f"broker {each} says {error}" for each, error in sorted(failures.items())]
    return f"Not all are here: {'; '.join(reasons)}." if reasons else None
