"""Partitions of a coordinators' topic that wait for a leader: what they hold is on no list meanwhile."""

from sparklog.node.metadata.image import MetadataImage


def awaits_leader(image: MetadataImage, topic_name: str) -> bool:
    """Whether a partition of the topic has no leader, and a live broker with a replica that may lead soon.

    A partition whose replicas are all away may stay so for long: what it holds is left out, as in Kafka.
    """
    topic = image.topics.by_name.get(topic_name)
    if topic is None:
        return False
    live = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
    return any(
        partition.leader is None and not live.isdisjoint(partition.replicas)
        for partition in topic.partitions.values()
    )
