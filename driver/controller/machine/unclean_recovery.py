"""Leaders for partitions all of whose last in-sync replicas may have lost records: the longest log leads.

All of these replicas stopped with their machines, or for an unknown reason, so their acknowledged records may
not have reached their disks (KIP-966 then calls for an unclean recovery). But a record that is on any of the
disks must stay. So the partition waits until all of them are back, asks them, and any other live replicas,
for the ends of their logs, and elects the longest: by the last record's leader epoch first, then by offset.
As each of them had everything committed, that log has all of it that any of them still has (as in Raft, whose
voters compare so). Another replica may have more, if they lost that; but its newer epoch proves nothing: the
records that it wrote alone as a leader were never committed, and later leaders may have committed records of
older epochs, as they write nothing of their own to begin with. So it leads if it has all of that longest log
for certain.

A replica whose directory is gone is not waited for, as long as another one is left. An administrator who
would rather lose records than wait asks for an unclean election, or allows one in the topic.

Others of its replicas that have just registered are waited for too. A replica that the controller had taken
out of the ISR before the last of them, and that is not there, is not: records may have been committed without
it.

Pure. Order for the caller: `elections` and `questions` now and then; pass the result of a question to
`answered`, and call `elections` again. Questions without an answer are repeated.
"""

import logging
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparklog.driver.controller.machine.cluster_state import ClusterState, election_of
from sparklog.driver.controller.machine.partition_changes import change_partition
from sparklog.node.metadata.image import PartitionRegistration, TopicImage
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicIdPartition

logger = logging.getLogger(__name__)


class LogQuestion(NamedTuple):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    leader_epochs: Mapping[str, Mapping[int, LeaderEpoch]]
    """By topic and partition the leader epoch that the broker must know, so that writes of older ones end."""


class _Answer(NamedTuple):
    broker_epoch: BrokerEpoch
    partition_epoch: PartitionEpoch
    position: LogPosition


class _Recoverable(NamedTuple):
    """A partition all of whose awaited replicas are there."""

    topic: TopicImage
    partition: PartitionRegistration
    present: Sequence[BrokerId]
    """The replicas that are there with their logs, in the order of the assignment."""


class UncleanRecovery:
    """The partitions that wait for such a leader, and the known ends of their logs."""

    def __init__(self) -> None:
        self._ready: dict[TopicIdPartition, _Recoverable] = {}
        self._answers: dict[TopicIdPartition, dict[BrokerId, _Answer]] = {}
        self._awaited: Counter[frozenset[BrokerId]] = Counter()
        """The number of the other partitions by the replicas that they wait for."""
        self._seen: tuple[object, object] | None = None

    def questions(self, cluster: ClusterState, now_ms: int) -> list[LogQuestion]:
        """Return the questions that must be answered before the waiting partitions can have leaders."""
        self._look(cluster, now_ms)
        asked: dict[BrokerId, dict[str, dict[int, LeaderEpoch]]] = {}
        for key, waiting in self._ready.items():
            for broker_id in self._unheard(cluster, key, waiting):
                epochs = asked.setdefault(broker_id, {}).setdefault(waiting.topic.name, {})
                epochs[key.partition] = waiting.partition.leader_epoch
        brokers = cluster.image.brokers
        return [LogQuestion(each, brokers[each].broker_epoch, epochs) for each, epochs in asked.items()]

    def answered(self, question: LogQuestion, positions: Mapping[tuple[str, int], LogPosition]) -> None:
        """Note the ends of logs, by topic and partition; missing ones are asked for again."""
        for key, (topic, partition, _) in self._ready.items():
            position = positions.get((topic.name, key.partition))
            asked_epoch = question.leader_epochs.get(topic.name, {}).get(key.partition)
            if position is not None and asked_epoch == partition.leader_epoch:
                self._answers.setdefault(key, {})[question.broker_id] = _Answer(
                    question.broker_epoch, partition.partition_epoch, position
                )

    def elections(self, cluster: ClusterState, now_ms: int) -> list[MetadataRecord]:
        """Return the records that give a leader to every partition of which enough is known."""
        self._look(cluster, now_ms)
        records: list[MetadataRecord] = []
        for key, waiting in self._ready.items():
            if self._unheard(cluster, key, waiting):
                continue
            topic, partition, _ = waiting
            rules = cluster.isr_rules(topic.name)
            record = change_partition(
                partition,
                topic.topic_id,
                key.partition,
                cluster.may_lead(partition),
                rules,
                election_of(rules),
                longest_log=self._longest(key, waiting),
            )
            if record is not None:
                records.append(record)
        if records:
            logger.warning(
                "%d partitions, all of whose in-sync replicas may have lost records, are led by their "
                "longest logs",
                len(records),
            )
        return records

    def _look(self, cluster: ClusterState, now_ms: int) -> None:
        """Find the partitions that wait, if the image has changed, or time alone may help."""
        image = cluster.image
        seen = (image.brokers, image.topics)
        if self._seen is not None and all(map(operator.is_, seen, self._seen)):
            return
        self._ready.clear()
        arriving = {broker_id for broker_id in image.brokers if cluster.is_arriving(broker_id, now_ms)}
        awaited: Counter[frozenset[BrokerId]] = Counter()
        for topic, number, partition in cluster.partitions(cluster.topic_index.leaderless):
            if not _waits(partition):
                continue
            away = {each for each in partition.last_known_elr if not cluster.is_active(each)}
            away |= arriving.intersection(partition.replicas)
            if away:
                awaited[frozenset(away)] += 1
                continue
            may_lead = cluster.may_lead(partition)
            present = [broker_id for broker_id in partition.replicas if may_lead(broker_id)]
            # Without any of them records are lost: only the topic or an administrator may allow that.
            if not set(present).isdisjoint(partition.last_known_elr):
                self._ready[TopicIdPartition(topic.topic_id, number)] = _Recoverable(
                    topic, partition, present
                )
        self._answers = {key: known for key, known in self._answers.items() if key in self._ready}
        self._seen = None if awaited and arriving else seen
        self._tell(awaited)

    def _tell(self, awaited: Counter[frozenset[BrokerId]]) -> None:
        if awaited == self._awaited:
            return
        self._awaited = awaited
        for away, count in awaited.items():
            logger.warning(
                "%d partitions wait for the logs of brokers %s: they may have records that all others have "
                "lost; an unclean election would do without them",
                count,
                sorted(away),
            )

    def _longest(self, key: TopicIdPartition, waiting: _Recoverable) -> BrokerId:
        if len(waiting.present) == 1:
            return waiting.present[0]
        answers = self._answers[key]

        def position(broker_id: BrokerId) -> LogPosition:
            return answers[broker_id].position

        # The first of equals, each time.
        in_sync = waiting.partition.last_known_elr
        longest = max((each for each in waiting.present if each in in_sync), key=position)
        may_have_more = [longest, *(each for each in waiting.present if each not in in_sync)]
        return max(
            (each for each in may_have_more if _continues(position(each), position(longest))), key=position
        )

    def _unheard(self, cluster: ClusterState, key: TopicIdPartition, waiting: _Recoverable) -> list[BrokerId]:
        """Return the present replicas whose logs' ends are unknown; a single replica is not asked."""
        if len(waiting.present) == 1:
            return []
        answers, brokers = self._answers.get(key, {}), cluster.image.brokers
        return [
            broker_id
            for broker_id in waiting.present
            if (answer := answers.get(broker_id)) is None
            or answer.broker_epoch != brokers[broker_id].broker_epoch
            or answer.partition_epoch != waiting.partition.partition_epoch
        ]


def _continues(log: LogPosition, other: LogPosition) -> bool:
    """Whether one log has for certain all that another has: in each epoch one leader wrote them both."""
    return not other.end_offset or (log.last_epoch == other.last_epoch and log.end_offset >= other.end_offset)


def _waits(partition: PartitionRegistration) -> bool:
    in_sync = partition.isr or partition.elr
    return partition.leader is None and not in_sync and bool(partition.last_known_elr)
