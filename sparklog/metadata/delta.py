"""Topics as the metadata image holds them, and what differs between one image and the next."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from sparklog.metadata.registrations import PartitionRegistration
from sparklog.types import BrokerId

ConfigResource: TypeAlias = tuple[int, str]
"""A `ResourceType` and the resource's name; a broker's is its id in digits, "" means every broker."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic: its name, its id, and its partitions by number."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, by name and by id; both mappings hold the same `TopicImage` objects."""

    by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)

    def partition(self, topic_id: UUID, partition: int) -> PartitionRegistration | None:
        """Return the partition, `None` if the topic or the partition does not exist."""
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    @property
    def partition_count(self) -> int:
        """How many partitions all topics have together."""
        return sum(len(topic.partitions) for topic in self.by_id.values())


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """What differs between two images that follow each other.

    `changed_topics` has created topics and those with created or changed partitions, with the numbers of
    these; a topic that was created and deleted in between is nowhere. `created_topics` is the part of it that
    is new. `deleted_topics` were in the older image. `changed_brokers` includes those that have gone.
    """

    changed_topics: Mapping[UUID, Set[int]] = field(default_factory=dict)
    created_topics: Set[UUID] = frozenset()
    deleted_topics: Mapping[UUID, str] = field(default_factory=dict)
    changed_configs: Set[ConfigResource] = frozenset()
    changed_brokers: Set[BrokerId] = frozenset()
    changed_features: Set[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether the images differ in nothing but the offset (and the next producer id)."""
        return not (
            self.changed_topics
            or self.deleted_topics
            or self.changed_configs
            or self.changed_brokers
            or self.changed_features
        )
