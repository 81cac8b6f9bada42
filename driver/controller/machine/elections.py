"""Elections: because a broker goes, because one comes, because somebody asks, because leaders lie unevenly.

Partitions whose ISR holds a broker are found by looking at all of them: mostly that is a good part of them,
at an event that is rare. Those that nobody leads, and those that another than the preferred leader leads, are
looked for again and again, and are few: the index knows them (`topic_index`).
"""

import logging
from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult

from driver.controller.machine.cluster_state import ClusterState, election_of
from driver.controller.machine.decision import Decision
from driver.controller.machine.partition_changes import Election, IsrRules, change_partition
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.image import PartitionRegistration, TopicImage
from sparklog.metadata.schemas import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    MetadataRecord,
    PartitionChangeRecord,
)
from sparklog.types import BrokerId, TopicIdPartition
from sparklog.wire.throttling import unthrottled

__all__ = [
    "elect_leaders",
    "elect_preferred_leaders",
    "elect_unclean_leaders",
    "elect_unfenced",
    "remove_from_isrs",
    "remove_lost_replicas",
    "remove_offline_replicas",
]

logger = logging.getLogger(__name__)

_PREFERRED = 0
_UNCLEAN = 1


def remove_from_isrs(cluster: ClusterState, broker_ids: Collection[BrokerId]) -> list[MetadataRecord]:
    """Take brokers that are being fenced or are shutting down out of every ISR, and their leaderships away.

    Of those that leave together none is out of sync before another: each stays eligible to lead (KIP-966), if
    too few are left to commit anything without it.
    """

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        if partition.leader not in broker_ids and not any(member in broker_ids for member in partition.isr):
            return None
        return _without(cluster, topic, number, partition, rules, broker_ids)

    return _for_partitions(cluster, change, f"brokers {sorted(broker_ids)} leave")


def remove_lost_replicas(cluster: ClusterState, broker_id: BrokerId) -> list[MetadataRecord]:
    """Treat a broker that is back after an unclean stop: what it had acknowledged may be gone (KIP-966)."""

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        if broker_id not in partition.isr and broker_id not in partition.elr:
            return None
        return _without(cluster, topic, number, partition, rules, (broker_id,), lost_log=(broker_id,))

    return _for_partitions(cluster, change, f"broker {broker_id} stopped uncleanly")


def elect_unfenced(cluster: ClusterState, broker_id: BrokerId) -> list[MetadataRecord]:
    """Give partitions without a leader the broker that is being unfenced, where it may lead them."""

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        if broker_id not in partition.replicas:
            return None
        return change_partition(
            partition,
            topic.topic_id,
            number,
            cluster.may_lead(partition, joining=broker_id),
            rules,
            election_of(rules),
        )

    return _for_partitions(cluster, change, f"broker {broker_id} joins", cluster.topic_index.leaderless)


def remove_offline_replicas(
    cluster: ClusterState, broker_id: BrokerId, directories: Iterable[UUID]
) -> list[MetadataRecord]:
    """Take a broker out of the partitions whose replicas lie in directories that went offline.

    What a failed disk had acknowledged may be gone, so these replicas are no eligible leader replicas either.
    """
    offline = frozenset(directories)

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        if broker_id not in partition.replicas or partition.directory_of(broker_id) not in offline:
            return None
        if broker_id not in partition.isr and broker_id not in partition.elr:
            return None
        return _without(cluster, topic, number, partition, rules, (broker_id,), lost_log=(broker_id,))

    return _for_partitions(cluster, change, f"directories of broker {broker_id} went offline")


def elect_preferred_leaders(cluster: ClusterState) -> list[MetadataRecord]:
    """Give every partition whose preferred leader is in sync and active to that leader."""

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        may_lead = cluster.may_lead(partition)
        return change_partition(partition, topic.topic_id, number, may_lead, rules, Election.PREFERRED)

    index = cluster.topic_index
    return _for_partitions(cluster, change, "preferred leaders", (*index.led_by_another, *index.leaderless))


def elect_unclean_leaders(cluster: ClusterState) -> list[MetadataRecord]:
    """Give partitions without a leader one that is active, where their topics have come to allow that."""

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        if not rules.unclean_election:
            return None
        may_lead = cluster.may_lead(partition)
        return change_partition(partition, topic.topic_id, number, may_lead, rules, Election.UNCLEAN)

    return _for_partitions(cluster, change, "unclean elections", cluster.topic_index.leaderless)


def elect_leaders(cluster: ClusterState, request: ElectLeadersRequest) -> Decision:
    """Answer ElectLeaders: preferred or unclean, for the partitions named or for all."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        logger.info("ElectLeaders with unknown election type %d", request.election_type)
        return Decision([], _elections(ErrorCode.invalid_request, ()))
    election = Election.PREFERRED if request.election_type == _PREFERRED else Election.UNCLEAN
    records: list[MetadataRecord] = []
    results = []
    if request.topic_partitions is None:
        index = cluster.topic_index
        candidates = {*index.led_by_another, *index.leaderless}
        wanted = [
            (
                topic.name,
                tuple(n for n in topic.partitions if TopicIdPartition(topic.topic_id, n) in candidates),
            )
            for topic in cluster.image.topics.by_id.values()
        ]
    else:
        wanted = [(topic.topic, tuple(topic.partitions)) for topic in request.topic_partitions]
    for name, numbers in wanted:
        answers = []
        for number in dict.fromkeys(numbers):
            error_code, message = ErrorCode.none, None
            try:
                records.append(_elect_one(cluster, name, number, election))
            except KafkaError as error:
                error_code, message = error.error_code, error.message
            if request.topic_partitions is None and error_code is ErrorCode.election_not_needed:
                continue
            answers.append(PartitionResult(partition_id=number, error_code=error_code, error_message=message))
        results.append(ReplicaElectionResult(topic=name, partition_result=tuple(answers)))
    logger.info("ElectLeaders: %s election of %d leaders", election.name.lower(), len(records))
    return Decision(records, _elections(ErrorCode.none, tuple(results)))


_Change = PartitionChangeRecord | None


def _for_partitions(
    cluster: ClusterState,
    change: Callable[[TopicImage, int, PartitionRegistration, IsrRules], _Change],
    reason: str,
    keys: Iterable[TopicIdPartition] | None = None,
) -> list[MetadataRecord]:
    """Return what `change` makes of the partitions that `keys` name, or of all."""
    records: list[MetadataRecord] = []
    moved = leaderless = 0
    rules_of: dict[UUID, IsrRules] = {}
    for topic, number, partition in cluster.partitions(keys):
        rules = rules_of.get(topic.topic_id)
        if rules is None:
            rules = rules_of[topic.topic_id] = cluster.isr_rules(topic.name)
        record = change(topic, number, partition, rules)
        if record is not None:
            records.append(record)
            leader = partition.leader if record.leader == NO_LEADER_CHANGE else record.leader
            leaderless += leader in (None, NO_LEADER)
            moved += leader not in (None, NO_LEADER, partition.leader)
    if records:
        logger.info(
            "%s: %d partitions change, %d have a new leader, %d have none",
            reason,
            len(records),
            moved,
            leaderless,
        )
    return records


def _elect_one(cluster: ClusterState, name: str, number: int, election: Election) -> PartitionChangeRecord:
    topic = cluster.image.topics.by_name.get(name)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None or partition is None:
        what = f"topic as {name}" if topic is None else f"partition as {name}-{number}"
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"No such {what}")
    if election is Election.PREFERRED:
        needed = partition.leader != partition.preferred_leader
    else:
        needed = partition.leader is None
    if not needed:
        raise KafkaError(ErrorCode.election_not_needed, f"{name}-{number} has leader {partition.leader}")
    rules = cluster.isr_rules(name)
    record = change_partition(partition, topic.topic_id, number, cluster.may_lead(partition), rules, election)
    if record is not None:
        return record
    if election is Election.PREFERRED:
        raise KafkaError(
            ErrorCode.preferred_leader_not_available,
            f"broker {partition.preferred_leader} is not active or not in the ISR {list(partition.isr)}",
        )
    raise KafkaError(
        ErrorCode.eligible_leaders_not_available,
        f"none of the replicas {list(partition.replicas)} is active with its log",
    )


def _elections(error_code: ErrorCode, results: tuple[ReplicaElectionResult, ...]) -> ElectLeadersResponse:
    return unthrottled(ElectLeadersResponse, error_code=error_code, replica_election_results=results)


def _without(
    cluster: ClusterState,
    topic: TopicImage,
    number: int,
    partition: PartitionRegistration,
    rules: IsrRules,
    broker_ids: Collection[BrokerId],
    *,
    lost_log: Collection[BrokerId] = (),
) -> _Change:
    """Return the change that takes brokers out of the ISR, and their leadership away."""
    return change_partition(
        partition,
        topic.topic_id,
        number,
        cluster.may_lead(partition, leaving=broker_ids),
        rules,
        election_of(rules),
        isr=tuple(member for member in partition.isr if member not in broker_ids),
        lost_log=lost_log,
    )
