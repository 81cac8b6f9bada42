"""Images of small clusters, one changed from the other."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
)

BROKERS = (0, 1, 2)


def partition(
    leader: int | None = 0, isr: tuple[int, ...] = BROKERS, **others: object
) -> PartitionRegistration:
    """Return a partition of three replicas."""
    given: dict[str, object] = {
        "replicas": BROKERS,
        "directories": (None,) * len(BROKERS),
        "isr": isr,
        "leader": leader,
        "leader_epoch": 1,
        "partition_epoch": 1,
        **others,
    }
    return PartitionRegistration(**given)  # type: ignore[arg-type]


def broker(broker_id: int, **others: object) -> BrokerRegistration:
    """Return an unfenced broker."""
    given: dict[str, object] = {
        "broker_id": broker_id,
        "broker_epoch": 10 + broker_id,
        "incarnation_id": None,
        "listeners": (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + broker_id),),
        "rack": f"rack-{broker_id}",
        "fenced": False,
        **others,
    }
    return BrokerRegistration(**given)  # type: ignore[arg-type]


def image(topics: Mapping[str, list[PartitionRegistration]], **brokers: BrokerRegistration) -> MetadataImage:
    """Return an image of these topics and of three brokers, some of them as given: `b1=broker(1, ...)`."""
    made = [
        TopicImage(name, UUID(int=number + 100), dict(enumerate(partitions)))
        for number, (name, partitions) in enumerate(topics.items())
    ]
    return MetadataImage(
        offset=1,
        brokers={number: brokers.get(f"b{number}", broker(number)) for number in BROKERS},
        topics=TopicsImage({topic.name: topic for topic in made}, {topic.topic_id: topic for topic in made}),
    )


def with_partitions(before: MetadataImage, name: str, **changed: PartitionRegistration) -> MetadataImage:
    """Return the image in which some partitions of a topic are others: `p0=partition(...)`."""
    topic = before.topics.by_name[name]
    partitions = {**topic.partitions, **{int(key[1:]): each for key, each in changed.items()}}
    after = replace(topic, partitions=partitions)
    return replace(
        before,
        topics=TopicsImage(
            {**before.topics.by_name, name: after}, {**before.topics.by_id, topic.topic_id: after}
        ),
    )
