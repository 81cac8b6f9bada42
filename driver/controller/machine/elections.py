"""Elections: for a broker that leaves or joins, for a request, and for the balance of leaders.

`topic_index` finds the partitions of each. If they are many, the first of them change at once, and the rest
by the decisions that follow (`unsettled_partitions`).
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from uuid import UUID

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult

from sparklog.driver.controller.machine.cluster_state import ClusterState, election_of
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.partition_changes import Election, IsrRules, change_partition
from sparklog.driver.controller.machine.unsettled_partitions import to_leave
from sparklog.node.metadata.image import PartitionRegistration, TopicImage
from sparklog.node.metadata.schemas import NO_LEADER, NO_LEADER_CHANGE, MetadataRecord, PartitionChangeRecord
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, TopicIdPartition

logger = logging.getLogger(__name__)

_PREFERRED = 0
_UNCLEAN = 1


def remove_from_isrs(cluster: ClusterState, broker_ids: Collection[BrokerId]) -> list[MetadataRecord]:
    """Take brokers that are being fenced or shutting down out of the first of their ISRs, and leaderships.

    Of those that leave together none is out of sync before another: each stays eligible to lead (KIP-966), if
    too few are left to commit anything without it. They leave the rest of the ISRs by `settle`.
    """
    keys = dict.fromkeys(
        islice(
            chain.from_iterable(to_leave(cluster.image, cluster.topic_index, each) for each in broker_ids),
            cluster.partitions_per_decision,
        )
    )

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        return _without(cluster, topic, number, partition, rules, broker_ids)

    return _for_partitions(cluster, change, f"brokers {sorted(broker_ids)} leave", keys)


def settle(cluster: ClusterState) -> list[MetadataRecord]:
    """Change the next noted partitions: members out of sync leave the ISR, and a leader is elected."""
    taken = cluster.unsettled.take(cluster.partitions_per_decision)

    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        return change_partition(
            partition,
            topic.topic_id,
            number,
            cluster.may_lead(partition),
            rules,
            Election.PREFERRED if taken[TopicIdPartition(topic.topic_id, number)] else election_of(rules),
            isr=tuple(member for member in partition.isr if cluster.is_in_sync(partition, member)),
            lost_log=cluster.lost_logs(partition),
        )

    return _for_partitions(cluster, change, "brokers have joined or left", taken)


def remove_lost_replicas(cluster: ClusterState, broker_id: BrokerId) -> list[MetadataRecord]:
    """Take a broker out of the first partitions in which it may have lost acknowledged records (KIP-966).

    After an unclean stop, or without a directory left, it is no eligible leader replica of any either. If
    `partitions_per_decision` of them change, there may be more.
    """
    counted_on = chain(
        to_leave(cluster.image, cluster.topic_index, broker_id), cluster.topic_index.eligible[broker_id]
    )
    return _lost(cluster, broker_id, islice(counted_on, cluster.partitions_per_decision))


def remove_from_failed_directories(
    cluster: ClusterState, broker_id: BrokerId, directories: Collection[UUID]
) -> list[MetadataRecord]:
    """Take a broker out of the first ISRs whose replicas lie in failed `directories`.

    It leaves the others by `settle`, once its registration is without the directories: that belongs into the
    same batch. It stops being an eligible leader replica of any of them at once, since those are few.
    """

    def of_them(keys: Iterable[TopicIdPartition]) -> Iterator[TopicIdPartition]:
        for topic, number, partition in cluster.partitions(keys):
            if partition.directory_of(broker_id) in directories:
                yield TopicIdPartition(topic.topic_id, number)

    index = cluster.topic_index
    in_sync = islice(of_them(index.in_sync[broker_id]), cluster.partitions_per_decision)
    return _lost(cluster, broker_id, chain(in_sync, of_them(index.eligible[broker_id])))


def _lost(
    cluster: ClusterState, broker_id: BrokerId, keys: Iterable[TopicIdPartition]
) -> list[MetadataRecord]:
    def change(topic: TopicImage, number: int, partition: PartitionRegistration, rules: IsrRules) -> _Change:
        return _without(cluster, topic, number, partition, rules, (broker_id,), lost_log=(broker_id,))

    return _for_partitions(cluster, change, f"replicas of broker {broker_id} are lost", keys)


def elect_unfenced(cluster: ClusterState, broker_id: BrokerId) -> list[MetadataRecord]:
    """Elect the broker that is being unfenced for the first partitions without a leader that it may lead."""

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

    first = islice(cluster.topic_index.leaderless, cluster.partitions_per_decision)
    return _for_partitions(cluster, change, f"broker {broker_id} joins", first)


def elect_leaders(cluster: ClusterState, request: ElectLeadersRequest) -> ControllerResult:
    """Answer ElectLeaders: preferred or unclean, for the partitions named or for all."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        logger.info("ElectLeaders with unknown election type %d", request.election_type)
        return ControllerResult([], _elections(ErrorCode.invalid_request, ()))
    election = Election.PREFERRED if request.election_type == _PREFERRED else Election.UNCLEAN_OF_ANY
    records: list[MetadataRecord] = []
    results = []
    wanted = [(topic.topic, topic.partitions) for topic in name_all(cluster, request).topic_partitions or ()]
    for name, numbers in wanted:
        answers = []
        for number in dict.fromkeys(numbers):
            error_code, message = ErrorCode.none, None
            try:
                records.append(_elect_one(cluster, name, number, election))
            except KafkaError as error:
                error_code, message = error.error_code, error.message
            answers.append(PartitionResult(partition_id=number, error_code=error_code, error_message=message))
        results.append(ReplicaElectionResult(topic=name, partition_result=tuple(answers)))
    logger.info(
        "ElectLeaders: %s election of %d leaders",
        "preferred" if election is Election.PREFERRED else "unclean",
        len(records),
    )
    return ControllerResult(records, _elections(ErrorCode.none, tuple(results)))


def name_all(cluster: ClusterState, request: ElectLeadersRequest) -> ElectLeadersRequest:
    """Return a request that names its partitions: a request for all means those that need the election."""
    if request.topic_partitions is not None:
        return request
    index = cluster.topic_index
    needed = [*index.leaderless, *(index.led_by_another if request.election_type == _PREFERRED else ())]
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number, _ in cluster.partitions(needed):
        by_topic[topic.name].append(number)
    named = (TopicPartitions(topic=name, partitions=tuple(sorted(each))) for name, each in by_topic.items())
    return replace(request, topic_partitions=tuple(named))


_Change = PartitionChangeRecord | None


def _for_partitions(
    cluster: ClusterState,
    change: Callable[[TopicImage, int, PartitionRegistration, IsrRules], _Change],
    reason: str,
    keys: Iterable[TopicIdPartition],
) -> list[MetadataRecord]:
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
    """Return the change that takes brokers out of the ISR, with others that have not left it yet."""
    return change_partition(
        partition,
        topic.topic_id,
        number,
        cluster.may_lead(partition, leaving=broker_ids),
        rules,
        election_of(rules),
        isr=tuple(
            each for each in partition.isr if each not in broker_ids and cluster.is_in_sync(partition, each)
        ),
        lost_log=(*lost_log, *cluster.lost_logs(partition)),
    )
