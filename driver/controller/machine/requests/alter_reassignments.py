"""AlterPartitionReassignments: move partitions to other replicas, or cancel that (KIP-455).

`reassignment` defines a reassignment and its end, which is any change that brings the target into the ISR,
this one included.

The rules:

- A target consists of distinct registered brokers. They need not be active: a reassignment waits.
- None of its new replicas is on a broker that leaves the cluster.
- No cancellation leaves only replicas out of sync, unless the topic allows unclean elections.

Source: Kafka's ReplicationControlManager; KIP-455, KIP-860 (replication factor left as it is).
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from sparklog.driver.controller.machine.cluster_state import ClusterState, election_of
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.partition_changes import Election, change_partition
from sparklog.driver.controller.machine.placement import validate_manual_assignment
from sparklog.driver.controller.machine.reassignment import Assignment, cancelled, reassigned
from sparklog.node.metadata.image import PartitionRegistration, TopicImage
from sparklog.node.metadata.schemas import MetadataRecord, PartitionChangeRecord
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, TopicIdPartition

logger = logging.getLogger(__name__)


def alter_reassignments(
    cluster: ClusterState, request: AlterPartitionReassignmentsRequest
) -> ControllerResult:
    records: list[MetadataRecord] = []
    changed: dict[TopicIdPartition, PartitionRegistration] = {}
    responses = []
    refused: list[str] = []
    for wanted in request.topics:
        topic = cluster.image.topics.by_name.get(wanted.name)
        answers = []
        for asked in wanted.partitions:
            number = asked.partition_index
            error_code, message = ErrorCode.none, None
            try:
                if topic is None:
                    raise KafkaError(
                        ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {wanted.name}."
                    )
                key = TopicIdPartition(topic.topic_id, number)
                before = changed.get(key, topic.partitions.get(number))
                record = _decide(cluster, topic, before, asked, request.allow_replication_factor_change)
                if record is not None:
                    assert before is not None
                    records.append(record)
                    changed[key] = before.changed_by(record)
            except KafkaError as error:
                error_code, message = error.error_code, error.message
                refused.append(f"{wanted.name}-{number}: {error}")
            answers.append(
                ReassignablePartitionResponse(
                    partition_index=number, error_code=error_code, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=wanted.name, partitions=tuple(answers)))
    asked_for = sum(len(topic.partitions) for topic in request.topics)
    ongoing = sum(partition.is_reassigning for partition in changed.values())
    logger.info(
        "AlterPartitionReassignments: of %d partitions %d change, %d of them wait for new replicas",
        asked_for,
        len(records),
        ongoing,
    )
    if refused:
        logger.info("%d partitions are not reassigned, the first is %s", len(refused), refused[0])
    return ControllerResult(
        records,
        unthrottled(
            AlterPartitionReassignmentsResponse,
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.none,
            error_message=None,
            responses=tuple(responses),
        ),
    )


def _decide(
    cluster: ClusterState,
    topic: TopicImage,
    partition: PartitionRegistration | None,
    asked: ReassignablePartition,
    allow_replication_factor_change: bool,
) -> PartitionChangeRecord | None:
    number = asked.partition_index
    if partition is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find partition {topic.name}:{number}."
        )
    if asked.replicas is not None:
        _check_target(cluster, partition, asked.replicas, allow_replication_factor_change)
        return reassign(cluster, topic, number, partition, asked.replicas)
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    return cancel(cluster, topic, number, partition)


def reassign(
    cluster: ClusterState,
    topic: TopicImage,
    number: int,
    partition: PartitionRegistration,
    target: Sequence[BrokerId],
    election: Election | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that begins to move a partition to `target`; None if it is there.

    `election` is that of its topic's rules by default.
    """
    assignment = reassigned(partition, target, cluster.default_directory)
    return _changed(cluster, topic, number, partition, assignment, _in_sync(cluster, partition), election)


def cancel(
    cluster: ClusterState, topic: TopicImage, number: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    """Return the record that restores the replicas from before the partition's reassignment.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT: none of them could lead.
    """
    assignment = cancelled(partition)
    isr = tuple(member for member in _in_sync(cluster, partition) if member in assignment.replicas)
    if not isr:
        may_lead = cluster.may_lead(replace(partition, **assignment.changes(partition)))
        unclean = cluster.isr_rules(topic.name).unclean_election
        in_turn = assignment.replicas if unclean else partition.elr
        if not any(may_lead(each) for each in in_turn if each in assignment.replicas):
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {topic.name}:{number} because it would require "
                "an unclean leader election.",
            )
    return _changed(cluster, topic, number, partition, assignment, isr, None)


def _in_sync(cluster: ClusterState, partition: PartitionRegistration) -> tuple[BrokerId, ...]:
    """Return the ISR without members that could not all be taken out of it at once."""
    return tuple(member for member in partition.isr if cluster.is_in_sync(partition, member))


def _changed(
    cluster: ClusterState,
    topic: TopicImage,
    number: int,
    partition: PartitionRegistration,
    assignment: Assignment,
    isr: tuple[BrokerId, ...],
    election: Election | None,
) -> PartitionChangeRecord | None:
    rules = cluster.isr_rules(topic.name)
    return change_partition(
        partition,
        topic.topic_id,
        number,
        cluster.may_lead(replace(partition, **assignment.changes(partition))),
        rules,
        election_of(rules) if election is None else election,
        isr=isr,
        lost_log=cluster.lost_logs(partition),
        assignment=assignment,
    )


def _check_target(
    cluster: ClusterState,
    partition: PartitionRegistration,
    target: Sequence[BrokerId],
    allow_replication_factor_change: bool,
) -> None:
    # A replica that is already on a surplus broker may stay until it is drained.
    surplus = cluster.surplus.difference(partition.replicas)
    validate_manual_assignment(target, cluster.image.brokers, None, surplus)
    replication_factor = len(partition.target_replicas)
    if not allow_replication_factor_change and len(target) != replication_factor:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {replication_factor} to {len(target)}",
        )
