"""The replicas of this broker by topic id and by name, beside the image they were made from.

Requests of older versions name a topic, newer ones its id; a name may mean another topic from one image to
the next, an id never does (KIP-516).
"""

from collections.abc import Collection, Iterator
from typing import TypeVar
from uuid import UUID

from sparklog.executor.partitions.replica import Replica
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

_Key = TypeVar("_Key", UUID, str)


class PartitionTable:
    def __init__(self, listener_name: str) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._listener_name = listener_name
        self._by_id: dict[UUID, dict[int, Replica]] = {}
        self._by_name: dict[str, dict[int, Replica]] = {}

    def __iter__(self) -> Iterator[Replica]:
        for partitions in self._by_id.values():
            yield from partitions.values()

    def __contains__(self, replica: Replica) -> bool:
        return self.get(*replica.key) is replica

    def __len__(self) -> int:
        return sum(map(len, self._by_id.values()))

    @property
    def leader_count(self) -> int:
        return sum(replica.leadership is not None for replica in self)

    def of_topic(self, topic_id: UUID) -> Collection[Replica]:
        return self._by_id.get(topic_id, {}).values()

    def has_topic(self, topic: str) -> bool:
        return topic in self._by_name

    def add(self, replica: Replica) -> None:
        """Add a replica; another of the same topic name and an older id is replaced."""
        topic, partition = replica.topic_partition
        self._by_id.setdefault(replica.topic_id, {})[partition] = replica
        self._by_name.setdefault(topic, {})[partition] = replica

    def remove(self, replica: Replica) -> None:
        topic, partition = replica.topic_partition
        _remove(self._by_id, replica.topic_id, partition, replica)
        _remove(self._by_name, topic, partition, replica)

    def get(self, topic_id: UUID, partition: int) -> Replica | None:
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def find(self, topic: UUID | str | None, partition: int) -> Replica:
        """Return the replica of a topic id or name.

        Raises:
            KafkaError: unknown_topic_id, unknown_topic_or_partition, or not_leader_or_follower for a
                partition that is on other brokers.
        """
        partitions = self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)  # type: ignore[arg-type]
        if partitions is not None:
            replica = partitions.get(partition)
            if replica is not None:
                return replica
        raise self._missing(topic, partition)

    def _missing(self, topic: UUID | str | None, partition: int) -> KafkaError:
        topics = self.image.topics
        known = topics.by_name.get(topic) if isinstance(topic, str) else topics.by_id.get(topic)  # type: ignore[arg-type]
        if known is None:
            if isinstance(topic, str):
                return KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic!r}")
            return KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic}")
        if partition not in known.partitions:
            return KafkaError(
                ErrorCode.unknown_topic_or_partition,
                f"topic {known.name!r} has {len(known.partitions)} partitions, none is number {partition}",
            )
        return KafkaError(ErrorCode.not_leader_or_follower, f"{known.name}-{partition} is not on this broker")

    def registration(self, topic: UUID | str | None, partition: int) -> PartitionRegistration | None:
        """Return the registration of a partition in the image, wherever its replicas are."""
        topics = self.image.topics
        known = topics.by_name.get(topic) if isinstance(topic, str) else topics.by_id.get(topic)  # type: ignore[arg-type]
        return None if known is None else known.partitions.get(partition)

    def endpoint(
        self, broker_id: BrokerId, listener_name: str | None = None
    ) -> tuple[Endpoint, str | None] | None:
        """Return a broker's endpoint and rack; without a listener's name, the inter-broker listener's."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return None
        endpoint = broker.endpoint(listener_name or self._listener_name)
        return None if endpoint is None else (endpoint, broker.rack)


def _remove(table: dict[_Key, dict[int, Replica]], key: _Key, partition: int, replica: Replica) -> None:
    partitions = table.get(key, {})
    if partitions.get(partition) is replica:
        del partitions[partition]
        if not partitions:
            del table[key]
