"""Internal topics that were not created by their coordinator: removed if nothing was ever written to them.

A coordinator creates its topic itself, compacted, with as many partitions as it divides its work by. A topic
that a client's request created is neither, and would be wrong for ever. Only its coordinator writes to an
internal topic, so an empty one stays empty; the coordinator creates it again when needed. A topic with
records is left alone, and a log line asks for its deletion.

Pure. Order for the caller: `questions` and `removals` now and then; pass the result of a question to
`answered`, and call `removals` again. Questions without an answer are repeated.
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
"""Every owner sets it explicitly; the cluster's default is another one."""


class InternalTopicRepair:
    """The internal topics that differ from those of their owners, and the known ends of their logs."""

    def __init__(self) -> None:
        self._end_offsets: dict[TopicIdPartition, int] = {}
        self._logged: set[str] = set()

    def questions(self, cluster: ClusterState) -> list[LogQuestion]:
        """Return the questions to leaders that must be answered before wrong topics can be removed."""
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
        """Note the ends of leaders' logs; missing ones are asked for again."""
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
                logger.warning(
                    "Topic %s is removed: empty, and not as its coordinator creates it", topic.name
                )
                records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        return records

    def _tell(self, topic: TopicImage) -> None:
        if topic.name not in self._logged:
            self._logged.add(topic.name)
            logger.error(
                "Topic %s has records, but is not as its coordinator creates it: it cannot be used until it "
                "is deleted",
                topic.name,
            )


def _wrong(cluster: ClusterState) -> Iterator[TopicImage]:
    image = cluster.image
    for name in sorted(INTERNAL_TOPICS):
        topic = image.topics.by_name.get(name)
        if topic is not None and image.topic_configs(name).get(_CLEANUP_POLICY) != _COMPACT:
            yield topic
