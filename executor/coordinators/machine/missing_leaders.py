"""Partitions of a coordinator's topic that await a leader; listings omit their groups or transactions."""

from sparklog.node.metadata.image import MetadataImage


def awaits_leader(image: MetadataImage, topic_name: str) -> bool:
    """Whether a partition of the topic has no leader, but a replica on a live broker that may lead soon.

    If all replicas of a partition are offline it may stay leaderless for long: its contents are left out, as
    in Kafka.
    """
    topic = image.topics.by_name.get(topic_name)
    if topic is None:
        return False
    live = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
    return any(
        partition.leader is None and not live.isdisjoint(partition.replicas)
        for partition in topic.partitions.values()
    )
