"""CreatePartitions: more partitions for topics that exist."""

import logging
from collections import Counter
from uuid import UUID

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.mutation_quota import MutationQuota
from sparklog.driver.controller.machine.placement import Load, place, validate_manual_assignment
from sparklog.driver.controller.machine.requests.create_topics import new_partition, too_many_partitions
from sparklog.node.apis.parts import MAX_PARTITIONS_PER_REQUEST
from sparklog.node.metadata.image import TopicImage
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata.topic_names import is_internal_topic
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)


def create_partitions(
    cluster: ClusterState, request: CreatePartitionsRequest, quota: MutationQuota
) -> ControllerResult:
    times_named = Counter(topic.name for topic in request.topics)
    load = cluster.topic_index.load.copy()
    records: list[MetadataRecord] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for wanted in request.topics:
        error_code, message = ErrorCode.none, None
        try:
            if times_named[wanted.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            topic, placed = _place(cluster, wanted, load)
            added = _partition_records(cluster, topic, placed)
            if len(records) + len(added) > MAX_PARTITIONS_PER_REQUEST:
                raise too_many_partitions()
            quota.spend(len(added))
            records += added
            if not request.validate_only:
                logger.info("Topic %s gets %d partitions more", topic.name, len(added))
        except KafkaError as error:
            error_code, message = error.error_code, error.message
        results[wanted.name] = CreatePartitionsTopicResult(
            name=wanted.name, error_code=error_code, error_message=message
        )
    reply = unthrottled(CreatePartitionsResponse, results=tuple(results.values()))
    return ControllerResult([] if request.validate_only else records, reply)


def _place(
    cluster: ClusterState, wanted: CreatePartitionsTopic, load: Load
) -> tuple[TopicImage, list[tuple[BrokerId, ...]]]:
    if is_internal_topic(wanted.name):
        # The coordinator finds the partition of a key by their number.
        raise KafkaError(
            ErrorCode.invalid_topic_exception,
            f"The number of partitions of internal topic {wanted.name} cannot be changed.",
        )
    topic = cluster.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"There is no topic {wanted.name}.")
    present = len(topic.partitions)
    if wanted.count == present:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an "
            "increase.",
        )
    additional = wanted.count - present
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise too_many_partitions()
    # A partition that is being reassigned counts with its target.
    same_topic = [topic.partitions[number].target_replicas for number in sorted(topic.partitions)]
    replication_factor = len(same_topic[0])
    if wanted.assignments is None:
        brokers = cluster.usable_brokers()
        return topic, place(brokers, additional, replication_factor, load, same_topic)
    if len(wanted.assignments) != additional:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
            "assignment(s) were specified.",
        )
    for assignment in wanted.assignments:
        validate_manual_assignment(
            assignment.broker_ids, cluster.image.brokers, replication_factor, cluster.surplus
        )
        load.add(assignment.broker_ids)
    return topic, [tuple(assignment.broker_ids) for assignment in wanted.assignments]


def _partition_records(
    cluster: ClusterState, topic: TopicImage, placed: list[tuple[BrokerId, ...]]
) -> list[MetadataRecord]:
    topic_id: UUID = topic.topic_id
    records: list[MetadataRecord] = []
    for number, replicas in enumerate(placed, start=len(topic.partitions)):
        partition = new_partition(cluster, replicas)
        if partition is None:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"All brokers specified in the manual partition assignment for partition {number} are fenced "
                "or in controlled shutdown.",
            )
        records.append(partition.to_record(topic_id, number))
    return records
