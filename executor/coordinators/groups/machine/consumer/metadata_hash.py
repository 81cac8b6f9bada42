"""Hash over a group's subscribed topics: a change triggers a new assignment (KIP-1101).

A topic's hash covers id, name, number of partitions and the racks of their replicas; a group's hash covers
those of its existing topics in the order of their names. The bytes are Kafka's, so that a group written by
another coordinator does not get a needless new assignment.

Source: Kafka's Utils.computeTopicHash and computeGroupHash; hash4j's HashStream64 for the encoding of strings
(UTF-16, then their length).
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final
from uuid import UUID

from xxhash import xxh3_64_intdigest

from sparklog.node.metadata.image import MetadataImage, TopicImage
from sparklog.node.metadata.registrations import BrokerRegistration
from sparklog.protocol.types import BrokerId

_VERSION_OF_THE_BYTES: Final = b"\0"
_INT: Final = Struct("<i")
_LONG: Final = Struct("<Q")


class TopicHashes:
    """The hashes of topics, cached while the topic is unchanged.

    A broker's move to another rack counts at the next change of the topic, as in Kafka.
    """

    def __init__(self) -> None:
        self._hashes: dict[UUID, tuple[TopicImage, int]] = {}

    def of_group(self, topics: Iterable[str], image: MetadataImage) -> int:
        """Return the hash of the topics that exist; 0 if none does."""
        hashes = [
            _LONG.pack(self._of_topic(topic, image.brokers))
            for name in sorted(topics)
            if (topic := image.topics.by_name.get(name)) is not None
        ]
        return _signed(xxh3_64_intdigest(b"".join(hashes))) if hashes else 0

    def forget(self, topic_ids: Iterable[UUID]) -> None:
        for topic_id in topic_ids:
            self._hashes.pop(topic_id, None)

    def _of_topic(self, topic: TopicImage, brokers: Mapping[BrokerId, BrokerRegistration]) -> int:
        kept = self._hashes.get(topic.topic_id)
        if kept is not None and kept[0] is topic:
            return kept[1]
        value = hash_topic(topic, brokers)
        self._hashes[topic.topic_id] = topic, value
        return value


def hash_topic(topic: TopicImage, brokers: Mapping[BrokerId, BrokerRegistration]) -> int:
    parts = [
        _VERSION_OF_THE_BYTES,
        _LONG.pack(topic.topic_id.int >> 64),
        _LONG.pack(topic.topic_id.int & (1 << 64) - 1),
        _string(topic.name),
        _INT.pack(len(topic.partitions)),
    ]
    # Partitions of a topic share few sets of replicas.
    racks_of: dict[tuple[BrokerId, ...], bytes] = {}
    for partition in range(len(topic.partitions)):
        registration = topic.partitions.get(partition)
        replicas = () if registration is None else tuple(registration.replicas)
        if replicas not in racks_of:
            racks_of[replicas] = _racks(replicas, brokers)
        parts += _INT.pack(partition), racks_of[replicas]
    return xxh3_64_intdigest(b"".join(parts))


def _racks(replicas: tuple[BrokerId, ...], brokers: Mapping[BrokerId, BrokerRegistration]) -> bytes:
    racks = [broker.rack for replica in replicas if (broker := brokers.get(replica)) is not None]
    return b"".join(
        _INT.pack(len(rack.encode("utf-16-le")) // 2) + _string(rack)
        for rack in sorted(rack for rack in racks if rack is not None)
    )


def _string(text: str) -> bytes:
    encoded = text.encode("utf-16-le")
    return encoded + _INT.pack(len(encoded) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
