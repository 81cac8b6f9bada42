"""AlterPartition: a leader proposes its partition's next ISR.

The rules:

- Only a proposal of the present leader epoch and partition epoch counts: an ISR change is made on top of the
  last one or not at all (KIP-497).
- No broker joins the ISR that is fenced, shutting down, or has registered again since the leader saw it catch
  up (KIP-841, KIP-903); nor does a broker stay in it whose directory has failed.
- A leader that recovers from an unclean election is alone in the ISR until it has recovered (KIP-704).
- A proposal may end a reassignment, and with it the leadership of the proposer. Then the change is made, and
  the reply is that there is another leader.
- Epochs higher than the controller's own mean that this controller is the one left behind.
"""

import logging
from uuid import UUID

from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.alter_partition.v3.request import PartitionData as ProposedPartition
from kio.schema.alter_partition.v3.response import AlterPartitionResponse
from kio.schema.alter_partition.v3.response import PartitionData as PartitionAnswer
from kio.schema.alter_partition.v3.response import TopicData as TopicAnswer

from sparklog.driver.controller.machine.cluster_state import ClusterState, election_of
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.partition_changes import change_partition
from sparklog.node.metadata.image import PartitionRegistration, TopicImage
from sparklog.node.metadata.schemas import (
    NO_LEADER,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
)
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, or_minus_one, unless_minus_one

logger = logging.getLogger(__name__)


def alter_partition(cluster: ClusterState, request: AlterPartitionRequest) -> ControllerResult:
    try:
        cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        logger.info("Refused AlterPartition: %s", error)
        return ControllerResult([], _answer(error.error_code, ()))
    records: list[MetadataRecord] = []
    topic_answers = []
    for topic_data in request.topics:
        topic = None if topic_data.topic_id is None else cluster.image.topics.by_id.get(topic_data.topic_id)
        partitions = {} if topic is None else dict(topic.partitions)
        answers = []
        for proposed in topic_data.partitions:
            number = proposed.partition_index
            try:
                if topic is None:
                    raise KafkaError(ErrorCode.unknown_topic_id, "there is no such topic id")
                change = _decide(cluster, request.broker_id, topic, partitions.get(number), proposed)
            except KafkaError as error:
                name = topic_data.topic_id if topic is None else topic.name
                logger.info("Refused AlterPartition of %s-%d: %s", name, number, error)
                answers.append(_refused(number, error.error_code))
                continue
            if change is not None:
                records.append(change)
                partitions[number] = _changed(topic, number, partitions[number], change)
            if partitions[number].leader == request.broker_id:
                answers.append(_accepted(number, partitions[number]))
            else:
                answers.append(_refused(number, ErrorCode.new_leader_elected))
        topic_answers.append(TopicAnswer(topic_id=topic_data.topic_id, partitions=tuple(answers)))
    return ControllerResult(records, _answer(ErrorCode.none, tuple(topic_answers)))


def _decide(
    cluster: ClusterState,
    broker_id: BrokerId,
    topic: TopicImage,
    partition: PartitionRegistration | None,
    proposed: ProposedPartition,
) -> PartitionChangeRecord | None:
    if partition is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, "there is no such partition")
    _check_epochs(broker_id, partition, proposed)
    isr = tuple(state.broker_id for state in proposed.new_isr_with_epochs)
    recovery_state = _check_isr(partition, proposed, isr)
    _check_members(cluster, partition, proposed)
    rules = cluster.isr_rules(topic.name)
    return change_partition(
        partition,
        topic.topic_id,
        proposed.partition_index,
        cluster.may_lead(partition),
        rules,
        election_of(rules),
        isr=isr,
        lost_log=cluster.lost_logs(partition),
        leader_recovery_state=recovery_state,
        directories=_directories(cluster, partition, isr),
    )


def _changed(
    topic: TopicImage, number: int, partition: PartitionRegistration, change: PartitionChangeRecord
) -> PartitionRegistration:
    changed = partition.changed_by(change)
    if partition.is_reassigning and not changed.is_reassigning:
        logger.info(
            "%s-%d: reassigned, its replicas are %s now and were %s; leader %s, ISR %s",
            topic.name,
            number,
            list(changed.replicas),
            list(partition.original_replicas),
            changed.leader,
            list(changed.isr),
        )
    return changed


def _check_epochs(broker_id: BrokerId, partition: PartitionRegistration, proposed: ProposedPartition) -> None:
    wanted = (
        f"broker {broker_id} proposes on leader epoch {proposed.leader_epoch} and partition epoch "
        f"{proposed.partition_epoch}; the partition has leader {partition.leader}, leader epoch "
        f"{partition.leader_epoch} and partition epoch {partition.partition_epoch}"
    )
    if proposed.leader_epoch > partition.leader_epoch or proposed.partition_epoch > partition.partition_epoch:
        raise KafkaError(ErrorCode.not_controller, wanted)
    if proposed.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.fenced_leader_epoch, wanted)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.invalid_request, wanted)
    if proposed.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.invalid_update_version, wanted)


def _check_isr(
    partition: PartitionRegistration, proposed: ProposedPartition, isr: tuple[BrokerId, ...]
) -> LeaderRecoveryState:
    problem: str | None = None
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        problem = f"are not distinct replicas of {list(partition.replicas)}"
    elif partition.leader not in isr:
        problem = f"do not include the leader {partition.leader}"
    try:
        recovery_state = LeaderRecoveryState(proposed.leader_recovery_state)
    except ValueError:
        raise KafkaError(
            ErrorCode.invalid_request, f"unknown leader recovery state {proposed.leader_recovery_state}"
        ) from None
    if recovery_state is LeaderRecoveryState.RECOVERING:
        if len(isr) > 1:
            problem = "are more than the leader, which is still recovering from an unclean election"
        elif partition.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            problem = "come with a leader that is recovering, but it had recovered"
    if problem is not None:
        raise KafkaError(ErrorCode.invalid_request, f"the proposed in-sync replicas {list(isr)} {problem}")
    return recovery_state


def _check_members(
    cluster: ClusterState, partition: PartitionRegistration, proposed: ProposedPartition
) -> None:
    lost = cluster.lost_logs(partition)
    for state in proposed.new_isr_with_epochs:
        registration = cluster.image.brokers.get(state.broker_id)
        problem: str | None = None
        if registration is None:
            problem = "not registered"
        elif registration.in_controlled_shutdown:
            problem = "shutting down"
        elif registration.fenced:
            problem = "fenced"
        elif unless_minus_one(state.broker_epoch) not in (None, registration.broker_epoch):
            problem = f"registered with epoch {registration.broker_epoch}, not {state.broker_epoch}"
        elif state.broker_id in lost:
            problem = "without the directory of its replica"
        if problem is not None:
            raise KafkaError(ErrorCode.ineligible_replica, f"broker {state.broker_id} is {problem}")


def _directories(
    cluster: ClusterState, partition: PartitionRegistration, isr: tuple[BrokerId, ...]
) -> tuple[UUID | None, ...]:
    """Return the replicas' directories, those of brokers that join the ISR brought up to date.

    A broker without the directory of its replica may not lead the partition. Once it has caught up in its
    present directory, it may again.
    """
    return tuple(
        cluster.default_directory(broker_id)
        if broker_id in isr and not cluster.image.brokers[broker_id].has_online_directory(directory)
        else directory
        for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
    )


def _answer(error_code: ErrorCode, topics: tuple[TopicAnswer, ...]) -> AlterPartitionResponse:
    return unthrottled(AlterPartitionResponse, error_code=error_code, topics=topics)


def _accepted(number: int, partition: PartitionRegistration) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=number,
        error_code=ErrorCode.none,
        leader_id=or_minus_one(partition.leader),
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=int(partition.leader_recovery_state),
        partition_epoch=partition.partition_epoch,
    )


def _refused(number: int, error_code: ErrorCode) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=number,
        error_code=error_code,
        leader_id=NO_LEADER,
        leader_epoch=-1,
        isr=(),
        leader_recovery_state=int(LeaderRecoveryState.RECOVERED),
        partition_epoch=-1,
    )
