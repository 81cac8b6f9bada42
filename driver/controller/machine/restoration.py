"""The metadata of a cluster that starts again with empty disks, from the snapshot in its object store.

The snapshot is edited before the first record of the new controller: brokers fetch it like any other, and
no broker ever sees the former assignment. The edited snapshot is one record and at least one leader epoch
further than the stored one, so no two snapshots with the same id differ.

The rules:

- Cluster, topic and principal state stays: ids of topics, configurations, quotas, ACLs, SCRAM credentials,
  features.
- Registrations of the former brokers are removed. Partitions stay on their brokers if those and their racks
  are the same as before, and otherwise are placed like new ones, on as many brokers as there are.
- All replicas are empty, so each of them has as much as any other: all of what is in the tier. All are in the
  ISR, and the first leads, in a higher leader epoch, without waiting for an election.
- The snapshot lags behind what the cluster did. Its last elections, of partitions and of controllers, and
  its last producer id blocks may not be in there, so these numbers leave a gap: the same leader epoch of
  two leaders, or the same producer id of two producers, would be taken for one. That includes an orderly
  stop, whose brokers leave after its last snapshot. Each application that has begun from the same snapshot
  before, and ended without one of its own, has used a gap: the next one follows it.

Pure. Source: KIP-631 for the records; KIP-320 for what consumers conclude from leader epochs.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sparklog.driver.controller.machine.placement import Load, UsableBroker, place
from sparklog.node.config.keys.controller_keys import READ_ONLY_KEY
from sparklog.node.metadata.image import (
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    ResourceType,
    TopicImage,
    TopicsImage,
)
from sparklog.node.metadata.schemas import UNASSIGNED_DIRECTORY, LeaderRecoveryState
from sparklog.protocol.types import BrokerId

UNSEEN_ELECTIONS: Final = 1_000
"""Elections of one partition that an application can hold without a snapshot, at most."""
UNSEEN_PRODUCER_IDS: Final = 10_000_000
"""Producer ids that an application can hand out without a snapshot, at most."""

logger = logging.getLogger(__name__)


def restored_image(
    saved: MetadataImage, brokers: Sequence[UsableBroker], starts_before: int = 0
) -> MetadataImage:
    """Return the image with which a cluster of empty `brokers` begins.

    `starts_before` is the number of applications that have begun from the same snapshot.
    """
    placed = _placement(saved, brokers)
    gaps = starts_before + 1
    unseen_elections = gaps * UNSEEN_ELECTIONS
    topics = {
        topic.name: replace(
            topic,
            partitions={
                number: _restored(partition, placed[topic.name][number], unseen_elections)
                for number, partition in topic.partitions.items()
            },
        )
        for topic in saved.topics.by_id.values()
    }
    return replace(
        saved,
        offset=saved.end_offset,
        leader_epoch=saved.leader_epoch + unseen_elections,
        brokers={},
        topics=TopicsImage(topics, {topic.topic_id: topic for topic in topics.values()}),
        configs=_writable(saved.configs),
        next_producer_id=saved.next_producer_id + gaps * UNSEEN_PRODUCER_IDS,
    )


_Assignment = Mapping[int, tuple[BrokerId, ...]]


def _placement(saved: MetadataImage, brokers: Sequence[UsableBroker]) -> Mapping[str, _Assignment]:
    former = {(each.broker_id, each.rack) for each in saved.brokers.values()}
    present = {(each.broker_id, each.rack) for each in brokers}
    replicas = {
        replica
        for topic in saved.topics.by_id.values()
        for partition in topic.partitions.values()
        for replica in partition.target_replicas
    }
    if former == present and replicas <= {each.broker_id for each in brokers}:
        return {
            topic.name: {number: each.target_replicas for number, each in topic.partitions.items()}
            for topic in saved.topics.by_id.values()
        }
    logger.info(
        "The cluster has %d brokers and had %d: all %d partitions are placed again",
        len(present),
        len(former),
        saved.topics.partition_count,
    )
    load = Load()
    placed = {}
    for name, topic in sorted(saved.topics.by_name.items()):
        placed[name] = _placed(topic, brokers, load)
    return placed


def _placed(topic: TopicImage, brokers: Sequence[UsableBroker], load: Load) -> _Assignment:
    assignment: dict[int, tuple[BrokerId, ...]] = {}
    by_replicas: dict[int, list[int]] = {}
    for number, partition in sorted(topic.partitions.items()):
        by_replicas.setdefault(len(partition.target_replicas), []).append(number)
    for wanted, numbers in by_replicas.items():
        possible = min(wanted, len(brokers))
        if possible < wanted:
            logger.warning(
                "Partitions of %s have %d replicas now and had %d, since there are no more brokers",
                topic.name,
                possible,
                wanted,
            )
        replicas = place(brokers, len(numbers), possible, load, assignment.values())
        assignment |= dict(zip(numbers, replicas, strict=True))
    return assignment


def _restored(
    partition: PartitionRegistration, replicas: tuple[BrokerId, ...], unseen_elections: int
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=replicas,
        directories=(UNASSIGNED_DIRECTORY,) * len(replicas),
        isr=replicas,
        leader=replicas[0],
        leader_epoch=partition.leader_epoch + unseen_elections,
        partition_epoch=partition.partition_epoch + unseen_elections,
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
    )


def _writable(
    configs: Mapping[ConfigResource, Mapping[str, str]],
) -> Mapping[ConfigResource, Mapping[str, str]]:
    """Return the configurations without the mark that an orderly stop leaves in them."""
    every_broker = (int(ResourceType.BROKER), "")
    marked = configs.get(every_broker, {})
    if READ_ONLY_KEY not in marked:
        return configs
    others = {name: value for name, value in marked.items() if name != READ_ONLY_KEY}
    return {**{key: each for key, each in configs.items() if key != every_broker}} | (
        {every_broker: others} if others else {}
    )
