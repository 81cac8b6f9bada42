"""Counts and lists of partitions, kept with each image, so that no decision looks through all of them.

Rule: after `changed` for each image in order, the index equals a `TopicIndex` made from the newest image. The
cost of a change depends on the partitions that it names, not on the cluster's size.
"""

from collections import Counter, defaultdict
from collections.abc import Collection

from sparklog.driver.controller.machine.placement import Load
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from sparklog.node.metadata.topic_names import collision_key
from sparklog.protocol.types import BrokerId, TopicIdPartition


class TopicIndex:
    def __init__(self, image: MetadataImage) -> None:
        self.load = Load()
        self.leading: Counter[BrokerId] = Counter()
        self.leaderless: dict[TopicIdPartition, None] = {}
        self.led_by_another: dict[TopicIdPartition, None] = {}
        """The partitions whose leader is not the preferred one."""
        self.in_sync: defaultdict[BrokerId, dict[TopicIdPartition, None]] = defaultdict(dict)
        """The partitions whose ISR each broker is in."""
        self.eligible: defaultdict[BrokerId, dict[TopicIdPartition, None]] = defaultdict(dict)
        """The partitions of which each broker is an eligible leader replica (KIP-966)."""
        self.names: dict[str, str] = {}
        """The topics' names by the key that no two may share (`collision_key`)."""
        for topic in image.topics.by_id.values():
            self._add_topic(topic)

    def changed(self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta) -> None:
        for topic_id in delta.deleted_topics:
            topic = before.topics.by_id[topic_id]
            if self.names.get(collision_key(topic.name)) == topic.name:
                del self.names[collision_key(topic.name)]
            for number, partition in topic.partitions.items():
                self._remove(TopicIdPartition(topic_id, number), partition)
        for topic_id, numbers in delta.changed_topics.items():
            topic = after.topics.by_id[topic_id]
            if topic_id in delta.created_topics:
                self._add_topic(topic)
                continue
            partitions_before = before.topics.by_id[topic_id].partitions
            for number in sorted(numbers):
                key, partition = TopicIdPartition(topic_id, number), topic.partitions[number]
                partition_before = partitions_before.get(number)
                if partition_before is None:
                    self._add(key, partition)
                elif partition.replicas != partition_before.replicas:
                    self._remove(key, partition_before)
                    self._add(key, partition)
                else:
                    if partition.leader != partition_before.leader:
                        self._move_leader(key, partition_before, partition)
                    _relist(self.in_sync, key, partition_before.isr, partition.isr)
                    _relist(self.eligible, key, partition_before.elr, partition.elr)

    def _add_topic(self, topic: TopicImage) -> None:
        self.names[collision_key(topic.name)] = topic.name
        for number, partition in topic.partitions.items():
            self._add(TopicIdPartition(topic.topic_id, number), partition)

    def _add(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        self.load.add(partition.replicas)
        if partition.leader is not None:
            self.leading[partition.leader] += 1
        listed = self._listed(partition)
        if listed is not None:
            listed[key] = None
        _relist(self.in_sync, key, (), partition.isr)
        _relist(self.eligible, key, (), partition.elr)

    def _remove(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        self.load.remove(partition.replicas)
        if partition.leader is not None:
            self.leading[partition.leader] -= 1
        listed = self._listed(partition)
        if listed is not None:
            del listed[key]
        _relist(self.in_sync, key, partition.isr, ())
        _relist(self.eligible, key, partition.elr, ())

    def _move_leader(
        self, key: TopicIdPartition, before: PartitionRegistration, after: PartitionRegistration
    ) -> None:
        if before.leader is not None:
            self.leading[before.leader] -= 1
        if after.leader is not None:
            self.leading[after.leader] += 1
        listed_before, listed = self._listed(before), self._listed(after)
        if listed_before is not listed:
            if listed_before is not None:
                del listed_before[key]
            if listed is not None:
                listed[key] = None

    def _listed(self, partition: PartitionRegistration) -> dict[TopicIdPartition, None] | None:
        """Return the list that has the partition, `leaderless` or `led_by_another`; None for neither."""
        if partition.leader is None:
            return self.leaderless
        return None if partition.leader == partition.preferred_leader else self.led_by_another


def _relist(
    lists: defaultdict[BrokerId, dict[TopicIdPartition, None]],
    key: TopicIdPartition,
    before: Collection[BrokerId],
    after: Collection[BrokerId],
) -> None:
    if before == after:
        return
    for broker_id in before:
        if broker_id not in after:
            del lists[broker_id][key]
    for broker_id in after:
        lists[broker_id][key] = None
