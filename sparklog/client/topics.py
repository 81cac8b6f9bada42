"""What a broker's metadata says of a topic, and what of it is newer than what is known."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kio.schema.metadata.v11.response import MetadataResponseTopic

from sparklog.client.errors import UnknownTopicError
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import BrokerId, LeaderEpoch


class Leader(NamedTuple):
    """Who leads a partition, and since which epoch."""

    broker_id: BrokerId
    leader_epoch: LeaderEpoch


class Topic(NamedTuple):
    """A topic as the metadata describes it."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    leaders: Mapping[int, Leader | None]
    """Every partition; None while it has no leader."""
    learned_ms: int
    """When the answer came, on the monotonic clock."""

    @property
    def partition_count(self) -> int:
        return len(self.leaders)


def described(answered: MetadataResponseTopic, learned_ms: int) -> Topic:
    """Return what an answer says of a topic.

    Raises:
        UnknownTopicError: it does not exist.
        KafkaError: the answer about it is refused.
    """
    if answered.error_code is ErrorCode.unknown_topic_or_partition:
        raise UnknownTopicError(
            f"topic {answered.name}",
            "check its name, or create it, or set auto.create.topics.enable for writes",
        )
    if answered.error_code is not ErrorCode.none:
        raise KafkaError(answered.error_code, f"topic {answered.name}: the metadata is refused")
    return Topic(
        answered.name,
        answered.topic_id,
        answered.is_internal,
        {
            partition.partition_index: Leader(partition.leader_id, partition.leader_epoch)
            if partition.leader_id >= 0
            else None
            for partition in answered.partitions
        },
        learned_ms,
    )


def not_behind(topic: Topic, known: Topic | None) -> Topic:
    """Return `topic` with what is `known` and the broker that was asked has not heard of yet.

    That is newer leaders, and partitions: of one topic, by its id, they never become fewer.
    """
    if known is None or known.topic_id != topic.topic_id:
        return topic
    leaders = {**known.leaders, **topic.leaders}
    for partition, before in known.leaders.items():
        leader = leaders[partition]
        if leader is not None and before is not None and before.leader_epoch > leader.leader_epoch:
            leaders[partition] = before
    return topic._replace(leaders=leaders)
