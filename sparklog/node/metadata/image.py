"""The cluster's metadata at one offset of `__cluster_metadata`: the sum of all records up to it.

An image is immutable: `replay_records` makes the next one, which shares all that the records between them did
not touch.

Source: Kafka's org.apache.kafka.image; KIP-631.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from sparklog.node.acls.acl import Acl
from sparklog.node.metadata.registrations import BrokerRegistration as BrokerRegistration
from sparklog.node.metadata.registrations import PartitionRegistration as PartitionRegistration
from sparklog.node.metadata.schemas import ResourceType as ResourceType
from sparklog.node.metadata.scram_records import ScramKey
from sparklog.node.security.sasl.scram import ScramCredential
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, ProducerId, TopicIdPartition

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})

ConfigResource: TypeAlias = tuple[int, str]
"""A `ResourceType` and the resource's name; a broker's is its id in digits, "" means all brokers."""

ClientQuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Entity of client quotas: entity types with the name of each, `None` for the default; sorted by type."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, by name and by id; both mappings have the same `TopicImage` objects."""

    by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)

    def partition(self, topic_id: UUID, partition: int) -> PartitionRegistration | None:
        """Return the partition; `None` if the topic or the partition does not exist."""
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    def partitions(self) -> Iterator[tuple[TopicIdPartition, PartitionRegistration]]:
        for topic in self.by_id.values():
            for number, partition in topic.partitions.items():
                yield TopicIdPartition(topic.topic_id, number), partition

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.by_id.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """All metadata at `offset`, the offset of the last applied record (`None` before the first).

    `leader_epoch` is the epoch of the controller that wrote it.
    """

    offset: Offset | None = None
    leader_epoch: LeaderEpoch = 0
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=dict)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    client_quotas: Mapping[ClientQuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: ProducerId = 0
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    scram_credentials: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)
    """By user name and mechanism."""

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not in the image, from which to fetch."""
        return 0 if self.offset is None else self.offset + 1

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Return the dynamic configuration of a topic; empty if it has none."""
        return self.configs.get((ResourceType.TOPIC, topic), _EMPTY)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return the dynamic configuration of a group; empty if it has none."""
        return self.configs.get((ResourceType.GROUP, group_id), _EMPTY)

    def broker_configs(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        """Return the dynamic configuration of one broker, or with `None` the cluster-wide default."""
        return self.configs.get((ResourceType.BROKER, "" if broker_id is None else str(broker_id)), _EMPTY)


EMPTY_IMAGE: Final = MetadataImage()
"""The image before the first record."""
