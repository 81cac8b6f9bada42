"""Internal topics that somebody other than their owner made: removed if nothing was ever written to them.

A coordinator makes its topic itself, compacted, with as many partitions as it divides its work by. One that
came into being because a client asked for it is neither, and would be wrong for ever. Nobody but its owner
writes to an internal topic, so one that is found empty stays so; its owner makes it anew when it first needs
it. One that has had records is left alone, and the log asks for it to be deleted.

Pure. Order for the caller: `questions` and `removals` now and then; what comes of a question is given to
`answered`, and `removals` asked for again. What nobody answered is asked again.
"""

import logging
from collections.abc import Iterator, Mapping

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.unclean_recovery import LogQuestion
from sparklog.node.metadata.image import TopicImage
from sparklog.node.metadata.schemas import MetadataRecord, RemoveTopicRecord
from sparklog.node.metadata.topic_names import INTERNAL_TOPICS
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.protocol.types import BrokerId, LeaderEpoch, TopicIdPartition

logger = logging.getLogger(__name__)

_CLEANUP_POLICY = "cleanup.policy"
_COMPACT = "compact"
"""Every owner sets it, in so many words, and the default of a cluster is another one."""


class InternalTopicRepair:
    """The internal topics that are not as their owners make them, and what is known of their logs."""

    def __init__(self) -> None:
        self._end_offsets: dict[TopicIdPartition, int] = {}
        self._told: set[str] = set()

    def questions(self, cluster: ClusterState) -> list[LogQuestion]:
        """Return what leaders have to be asked before the wrong topics can be removed."""
        asked: dict[BrokerId, dict[str, dict[int, LeaderEpoch]]] = {}
        for topic in _wrong(cluster):
            for number, partition in topic.partitions.items():
                leader = partition.leader
                if leader is not None and TopicIdPartition(topic.topic_id, number) not in self._end_offsets:
                    asked.setdefault(leader, {}).setdefault(topic.name, {})[number] = partition.leader_epoch
        brokers = cluster.image.brokers
        return [LogQuestion(each, brokers[each].broker_epoch, epochs) for each, epochs in asked.items()]

    def answered(
        self, cluster: ClusterState, question: LogQuestion, positions: Mapping[tuple[str, int], LogPosition]
    ) -> None:
        """Take in how far leaders' logs reach; those that are missing are asked for again."""
        for topic in _wrong(cluster):
            for number, partition in topic.partitions.items():
                position = positions.get((topic.name, number))
                asked_epoch = question.leader_epochs.get(topic.name, {}).get(number)
                if (
                    position is not None
                    and asked_epoch == partition.leader_epoch
                    and question.broker_id == partition.leader
                ):
                    self._end_offsets[TopicIdPartition(topic.topic_id, number)] = position.end_offset

    def removals(self, cluster: ClusterState) -> list[MetadataRecord]:
        """Return the records that remove the wrong topics that are known to be empty."""
        records: list[MetadataRecord] = []
        for topic in _wrong(cluster):
            ends = [
                self._end_offsets.get(TopicIdPartition(topic.topic_id, number)) for number in topic.partitions
            ]
            if any(ends):
                self._tell(topic)
            elif None not in ends:
                logger.warning("Topic %s is empty, and not as its owner makes it: it is removed", topic.name)
                records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        return records

    def _tell(self, topic: TopicImage) -> None:
        if topic.name not in self._told:
            self._told.add(topic.name)
            logger.error(
                "Topic %s is not as its owner makes it, but has records: it cannot be used before somebody "
                "deletes it",
                topic.name,
            )


def _wrong(cluster: ClusterState) -> Iterator[TopicImage]:
    image = cluster.image
    for name in sorted(INTERNAL_TOPICS):
        topic = image.topics.by_name.get(name)
        if topic is not None and image.topic_configs(name).get(_CLEANUP_POLICY) != _COMPACT:
            yield topic
