"""CreateTopics: names, configurations and placements checked, then one batch of records for all topics.

A topic is a TopicRecord, its ConfigRecords, then its PartitionRecords. Topics that cannot be created have
their own errors and keep no other from being created.
"""

import logging
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.mutation_quota import MutationQuota
from sparklog.driver.controller.machine.placement import Load, place, validate_manual_assignment
from sparklog.driver.controller.machine.requests.table_names import TableNames
from sparklog.node.apis.parts import MAX_PARTITIONS_PER_REQUEST
from sparklog.node.apis.topics import CREATE_TOPICS
from sparklog.node.config import TOPIC_KEYS, BrokerConfig, TopicConfig, checked_topic_config
from sparklog.node.config.topic import TOPIC_SYNONYMS
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.schemas import ConfigRecord, MetadataRecord, ResourceType, TopicRecord
from sparklog.node.metadata.topic_names import check_topic_name, collision_key, is_made_by_the_cluster
from sparklog.node.responses.internal_topics import is_as_its_owner_makes_it
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)

LOGGED_TOPICS: Final = 100
"""The most topics of one request that are logged one by one."""

_UNSET: Final = -1
_DYNAMIC_TOPIC_CONFIG: Final = 1
_STATIC_BROKER_CONFIG: Final = 4
_DEFAULT_CONFIG: Final = 5


def create_topics(
    cluster: ClusterState,
    request: CreateTopicsRequest,
    new_topic_id: Callable[[], UUID],
    quota: MutationQuota,
) -> ControllerResult:
    if asks_too_much(cluster.config, request):
        error = too_many_partitions()
        logger.info("%d topics are not created: %s", len(request.topics), error)
        return ControllerResult([], CREATE_TOPICS.refused(request, error))
    times_named = Counter(topic.name for topic in request.topics)
    collisions = ChainMap({}, cluster.topic_index.names)
    load = cluster.topic_index.load.copy()
    records: list[MetadataRecord] = []
    results: dict[str, CreatableTopicResult] = {}
    tables = TableNames(cluster.config, cluster.image)
    described: dict[frozenset[tuple[str, str]], tuple[CreatableTopicConfigs, ...]] = {}
    log_each = not request.validate_only and len(request.topics) <= LOGGED_TOPICS
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if times_named[topic.name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            _check_name(cluster, topic, collisions)
            config = _config(cluster, topic)
            tables.take(topic.name, config)
            partitions = _partitions(cluster, topic, load)
            quota.spend(len(partitions))
        except KafkaError as error:
            results[topic.name] = _refused(topic.name, error)
            logger.info("Topic %s is not created: %s", topic.name, error)
            continue
        topic_id = new_topic_id()
        collisions[collision_key(topic.name)] = topic.name
        records += _records(topic.name, topic_id, config, partitions)
        own = frozenset(config.raw.items())
        if own not in described:
            described[own] = _described(cluster.config, config)
        results[topic.name] = _created(topic.name, topic_id, described[own], partitions)
        if log_each:
            logger.info(
                "Topic %s is created with id %s and %d partitions", topic.name, topic_id, len(partitions)
            )
    if records and not request.validate_only and not log_each:
        created = sum(isinstance(record, TopicRecord) for record in records)
        logger.info("%d topics are created", created)
    reply = unthrottled(CreateTopicsResponse, topics=tuple(results.values()))
    return ControllerResult([] if request.validate_only else records, reply)


def new_partition(cluster: ClusterState, replicas: Sequence[BrokerId]) -> PartitionRegistration | None:
    """Return a partition that begins with all active replicas in sync; `None` if there is none."""
    isr = tuple(broker_id for broker_id in replicas if cluster.is_active(broker_id))
    if not isr:
        return None
    return PartitionRegistration(
        replicas=tuple(replicas),
        directories=cluster.default_directories(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def asks_too_much(config: BrokerConfig, request: CreateTopicsRequest) -> bool:
    """Whether a request would create more partitions than MAX_PARTITIONS_PER_REQUEST."""
    return sum(partitions_wanted(config, topic) for topic in request.topics) > MAX_PARTITIONS_PER_REQUEST


def too_many_partitions() -> KafkaError:
    return KafkaError(
        ErrorCode.policy_violation, f"one request may create at most {MAX_PARTITIONS_PER_REQUEST} partitions"
    )


def partitions_wanted(config: BrokerConfig, topic: CreatableTopic) -> int:
    """Return the number of partitions that a topic has if it is created."""
    if topic.assignments:
        return len(topic.assignments)
    return config.num_partitions if topic.num_partitions == _UNSET else max(0, topic.num_partitions)


def _check_name(cluster: ClusterState, topic: CreatableTopic, collisions: Mapping[str, str]) -> None:
    name = topic.name
    check_topic_name(name)
    if is_made_by_the_cluster(name) and not is_as_its_owner_makes_it(topic):
        raise KafkaError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")
    if name in cluster.image.topics.by_name:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    other = collisions.get(collision_key(name))
    if other is not None:
        raise KafkaError(
            ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}"
        )


def _config(cluster: ClusterState, topic: CreatableTopic) -> TopicConfig:
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise KafkaError(
            ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(missing)}"
        )
    return checked_topic_config(cluster.config, {config.name: config.value or "" for config in topic.configs})


def _partitions(cluster: ClusterState, topic: CreatableTopic, load: Load) -> list[PartitionRegistration]:
    if topic.assignments:
        return _assigned_partitions(cluster, topic, load)
    replication_factor, partition_count = topic.replication_factor, topic.num_partitions
    if replication_factor != _UNSET and replication_factor < 1:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partition_count != _UNSET and partition_count < 1:
        raise KafkaError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    if replication_factor == _UNSET:
        replication_factor = cluster.config.default_replication_factor
    if partition_count == _UNSET:
        partition_count = cluster.config.num_partitions
    placed = place(cluster.usable_brokers(), partition_count, replication_factor, load)
    new = _new_partitions(cluster, placed)
    partitions = []
    for replicas in placed:
        partition = new[replicas]
        assert partition is not None, "placement puts an active broker first"
        partitions.append(partition)
    return partitions


def _new_partitions(
    cluster: ClusterState, replicas_of_each: Iterable[tuple[BrokerId, ...]]
) -> dict[tuple[BrokerId, ...], PartitionRegistration | None]:
    """Return the first state of partitions by their replicas: one for all with the same replicas."""
    return {replicas: new_partition(cluster, replicas) for replicas in set(replicas_of_each)}


def _assigned_partitions(
    cluster: ClusterState, topic: CreatableTopic, load: Load
) -> list[PartitionRegistration]:
    if topic.replication_factor != _UNSET or topic.num_partitions != _UNSET:
        raise KafkaError(
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but replication factor and number of partitions "
            "were not set to -1.",
        )
    numbers = [assignment.partition_index for assignment in topic.assignments]
    if sorted(numbers) != list(range(len(numbers))):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence, each with one assignment",
        )
    partitions = []
    replication_factor: int | None = None
    new = _new_partitions(cluster, (assignment.broker_ids for assignment in topic.assignments))
    valid: set[tuple[BrokerId, ...]] = set()
    for assignment in sorted(topic.assignments, key=lambda assignment: assignment.partition_index):
        if assignment.broker_ids not in valid:
            validate_manual_assignment(
                assignment.broker_ids, cluster.image.brokers, replication_factor, cluster.surplus
            )
            valid.add(assignment.broker_ids)
        replication_factor = len(assignment.broker_ids)
        partition = new[assignment.broker_ids]
        if partition is None:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                "All brokers specified in the manual partition assignment for partition "
                f"{assignment.partition_index} are fenced or in controlled shutdown.",
            )
        partitions.append(partition)
    for partition in partitions:
        load.add(partition.replicas)
    return partitions


def _records(
    name: str, topic_id: UUID, config: TopicConfig, partitions: Sequence[PartitionRegistration]
) -> list[MetadataRecord]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
            for key, value in sorted(config.raw.items())
        ),
        *(partition.to_record(topic_id, number) for number, partition in enumerate(partitions)),
    ]


def _created(
    name: str,
    topic_id: UUID,
    configs: tuple[CreatableTopicConfigs, ...],
    partitions: Sequence[PartitionRegistration],
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=configs,
    )


def _described(broker_config: BrokerConfig, config: TopicConfig) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=key,
            value=TOPIC_KEYS[key].format(config.value(key)),
            read_only=False,
            config_source=_source(broker_config, config, key),
            is_sensitive=TOPIC_KEYS[key].sensitive,
        )
        for key in sorted(TOPIC_KEYS)
    )


def _source(broker_config: BrokerConfig, config: TopicConfig, key: str) -> int:
    if key in config.raw:
        return _DYNAMIC_TOPIC_CONFIG
    if any(synonym.name in broker_config.raw for synonym in TOPIC_SYNONYMS[key]):
        return _STATIC_BROKER_CONFIG
    return _DEFAULT_CONFIG


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=error.error_code, error_message=error.message, configs=()
    )
