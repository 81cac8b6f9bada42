"""Topics as described by a broker's metadata, merged with newer knowledge."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kio.schema.metadata.v11.response import MetadataResponseTopic

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch
from sparklog.user.client.errors import UnknownTopicError


class Leader(NamedTuple):
    broker_id: BrokerId
    leader_epoch: LeaderEpoch


class Topic(NamedTuple):
    name: str
    topic_id: UUID | None
    is_internal: bool
    leaders: Mapping[int, Leader | None]
    """All partitions; None for one without a leader."""
    learned_ms: int
    """Monotonic time of the answer."""
    in_sync: Mapping[int, tuple[BrokerId, ...]] = MappingProxyType({})
    """The ISR of each partition, as the answering broker knew it."""

    @property
    def partition_count(self) -> int:
        return len(self.leaders)


def described(answered: MetadataResponseTopic, learned_ms: int) -> Topic:
    """Return the topic of a metadata answer.

    Raises:
        UnknownTopicError: it does not exist.
        KafkaError: the answer is an error.
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
        {partition.partition_index: tuple(partition.isr_nodes) for partition in answered.partitions},
    )


def not_behind(topic: Topic, known: Topic | None) -> Topic:
    """Return `topic` merged with newer knowledge that the answering broker lacks.

    That is newer leaders, and partitions: of one topic, by its id, these never become fewer.
    """
    if known is None or known.topic_id != topic.topic_id:
        return topic
    leaders = {**known.leaders, **topic.leaders}
    for partition, before in known.leaders.items():
        leader = leaders[partition]
        if leader is not None and before is not None and before.leader_epoch > leader.leader_epoch:
            leaders[partition] = before
    return topic._replace(leaders=leaders)
