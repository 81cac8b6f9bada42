"""Brokers that a client can reach through its listener: responses have their endpoints of the same name.

Source: Kafka's KRaftMetadataCache.
"""

from collections.abc import Iterable, Iterator

from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from sparklog.protocol.types import BrokerId


def brokers_with(image: MetadataImage, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    """Yield the brokers with the listener, by id, and their endpoints."""
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoint(listener_name)
        if endpoint is not None:
            yield broker, endpoint


def live_brokers(image: MetadataImage, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    """Yield the unfenced brokers with the listener, and their endpoints."""
    return (pair for pair in brokers_with(image, listener_name) if not pair[0].fenced)


def is_any_live(image: MetadataImage) -> bool:
    """Whether any broker is not fenced.

    While there is none, the response to Metadata is delayed. librdkafka since 2.10 drops all known brokers,
    its bootstrap servers among them, on a response with topics and without brokers; sometimes it never sends
    a request again (its issue 5301). Java's clients ignore such a response and retry.
    """
    return any(not broker.fenced for broker in image.brokers.values())


def live_among(
    image: MetadataImage, broker_ids: Iterable[BrokerId], listener_name: str
) -> Iterator[BrokerId]:
    for broker_id in broker_ids:
        broker = image.brokers.get(broker_id)
        if broker is not None and not broker.fenced and broker.endpoint(listener_name) is not None:
            yield broker_id


def reachable_leader(
    image: MetadataImage, partition: PartitionRegistration, listener_name: str
) -> BrokerId | None:
    """Return the partition's leader; `None` if there is none with the listener."""
    if partition.leader is None:
        return None
    broker = image.brokers.get(partition.leader)
    if broker is None or broker.endpoint(listener_name) is None:
        return None
    return partition.leader


def offline_replicas(
    image: MetadataImage, partition: PartitionRegistration, listener_name: str
) -> tuple[BrokerId, ...]:
    """Return the replicas that are offline for clients of the listener."""
    offline = []
    for broker_id, directory_id in zip(partition.replicas, partition.directories, strict=True):
        broker = image.brokers.get(broker_id)
        if (
            broker is None
            or broker.fenced
            or broker.endpoint(listener_name) is None
            or not broker.has_online_directory(directory_id)
        ):
            offline.append(broker_id)
    return tuple(offline)
