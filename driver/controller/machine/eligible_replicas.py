"""Eligible leader replicas (KIP-966) after a change of min.insync.replicas.

They, and those that are remembered while a leader recovers, were chosen because nothing is committed below
the minimum of their time. Under a smaller one their leader commits without them, so they are forgotten,
wherever a replica is in sync. A partition whose ISR is empty has no leader that could commit anything:
there they stay, and are the only ones that may lead. Kafka's ClearElrRecord makes no such difference: it
would leave that partition without a leader for ever, and is neither written nor read here.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from sparklog.node.metadata.image import MetadataImage, TopicImage
from sparklog.node.metadata.schemas import MetadataRecord, PartitionChangeRecord

_MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"


def forget_eligible_replicas(topics: Iterable[TopicImage]) -> list[MetadataRecord]:
    """Return the records that forget the eligible leader replicas of all partitions with an ISR.

    They belong into the batch that changes the configuration.
    """
    return [
        PartitionChangeRecord(
            topic_id=topic.topic_id,
            partition_id=partition_id,
            eligible_leader_replicas=() if partition.elr else None,
            last_known_elr=() if partition.last_known_elr else None,
        )
        for topic in topics
        for partition_id, partition in topic.partitions.items()
        if partition.isr and (partition.elr or partition.last_known_elr)
    ]


def topics_by_default(image: MetadataImage) -> Iterator[TopicImage]:
    """Yield the topics that use the cluster's min.insync.replicas, having none of their own."""
    for topic in image.topics.by_id.values():
        if _MIN_IN_SYNC_REPLICAS not in image.topic_configs(topic.name):
            yield topic
