"""AssignReplicasToDirs: a broker reports the directories of its replicas (KIP-858).

The rules:

- A replica in a directory that is not online, or in none (LOST), is out of the ISR and out of the eligible
  leader replicas, also as the last known leader. It may have lost acknowledged records, and counts again
  when it has caught up.
- A replica with damaged records (DAMAGED) is as one in LOST, but the report is refused for the last replica
  that may be elected cleanly: it refuses what is damaged, and has all the rest.
- A replica in an online directory may lead from there, if it may lead at all.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from kio.schema.assign_replicas_to_dirs.v0.request import AssignReplicasToDirsRequest
from kio.schema.assign_replicas_to_dirs.v0.response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

from sparklog.driver.controller.machine.cluster_state import ClusterState, election_of
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.partition_changes import change_partition
from sparklog.node.metadata.image import PartitionRegistration, TopicImage
from sparklog.node.metadata.schemas import (
    DAMAGED_DIRECTORY,
    LOST_DIRECTORY,
    MetadataRecord,
    PartitionChangeRecord,
)
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, TopicIdPartition

logger = logging.getLogger(__name__)


def assign_directories(cluster: ClusterState, request: AssignReplicasToDirsRequest) -> ControllerResult:
    broker_id = request.broker_id
    try:
        registration = cluster.check_broker_epoch(broker_id, request.broker_epoch)
    except KafkaError as error:
        logger.info("Refused AssignReplicasToDirs: %s", error)
        return ControllerResult([], _answer(error.error_code, ()))
    records: list[MetadataRecord] = []
    changed: dict[TopicIdPartition, PartitionRegistration] = {}
    answers = []
    for directory in request.directories:
        directory_id = LOST_DIRECTORY if directory.id_ is None else directory.id_
        online = directory_id in registration.log_directories
        topic_answers = []
        for wanted in directory.topics:
            topic = None if wanted.topic_id is None else cluster.image.topics.by_id.get(wanted.topic_id)
            partition_answers = []
            for number in (partition.partition_index for partition in wanted.partitions):
                error_code = _refusal(topic, number, broker_id)
                if error_code is ErrorCode.none:
                    assert topic is not None
                    key = TopicIdPartition(topic.topic_id, number)
                    before = changed.get(key, topic.partitions[number])
                    record = None
                    if directory_id == DAMAGED_DIRECTORY and before.eligible == (broker_id,):
                        error_code = ErrorCode.eligible_leaders_not_available
                    else:
                        record = _change(
                            cluster, topic, number, before, broker_id, directory_id, online=online
                        )
                    if record is not None:
                        records.append(record)
                        changed[key] = before.changed_by(record)
                partition_answers.append(PartitionData(partition_index=number, error_code=error_code))
            topic_answers.append(TopicData(topic_id=wanted.topic_id, partitions=tuple(partition_answers)))
        answers.append(DirectoryData(id_=directory.id_, topics=tuple(topic_answers)))
        logger.log(
            logging.INFO if online else logging.WARNING,
            "Broker %d has %d replicas in %s",
            broker_id,
            sum(len(topic.partitions) for topic in directory.topics),
            f"directory {directory_id}" if online else "no directory that can be used",
        )
    return ControllerResult(records, _answer(ErrorCode.none, tuple(answers)))


def _refusal(topic: TopicImage | None, number: int, broker_id: BrokerId) -> ErrorCode:
    if topic is None:
        return ErrorCode.unknown_topic_id
    partition = topic.partitions.get(number)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none if broker_id in partition.replicas else ErrorCode.not_leader_or_follower


def _change(
    cluster: ClusterState,
    topic: TopicImage,
    number: int,
    partition: PartitionRegistration,
    broker_id: BrokerId,
    directory_id: UUID,
    *,
    online: bool,
) -> PartitionChangeRecord | None:
    rules = cluster.isr_rules(topic.name)
    located_in = LOST_DIRECTORY if directory_id == DAMAGED_DIRECTORY else directory_id
    directories = tuple(
        located_in if replica == broker_id else directory
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
    )
    placed = replace(partition, directories=directories)
    if online:
        return change_partition(
            partition,
            topic.topic_id,
            number,
            cluster.may_lead(placed),
            rules,
            election_of(rules),
            directories=directories,
        )
    record = change_partition(
        partition,
        topic.topic_id,
        number,
        cluster.may_lead(placed, leaving=(broker_id,)),
        rules,
        election_of(rules),
        isr=tuple(member for member in partition.isr if member != broker_id),
        lost_log=(broker_id,),
        directories=directories,
    )
    return _not_last_known(partition, record, topic.topic_id, number, broker_id)


def _not_last_known(
    partition: PartitionRegistration,
    record: PartitionChangeRecord | None,
    topic_id: UUID,
    number: int,
    broker_id: BrokerId,
) -> PartitionChangeRecord | None:
    """Return `record` such that the broker is not elected as the last known leader."""
    last_known: Sequence[BrokerId] = partition.last_known_elr
    if record is not None and record.last_known_elr is not None:
        last_known = record.last_known_elr
    if broker_id not in last_known:
        return record
    others = tuple(member for member in last_known if member != broker_id)
    if record is None:
        return PartitionChangeRecord(topic_id=topic_id, partition_id=number, last_known_elr=others)
    return replace(record, last_known_elr=others)


def _answer(error_code: ErrorCode, directories: tuple[DirectoryData, ...]) -> AssignReplicasToDirsResponse:
    return unthrottled(AssignReplicasToDirsResponse, error_code=error_code, directories=directories)
