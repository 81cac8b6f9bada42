"""Responses to Metadata: brokers and topics.

Pure functions from an image and a request to a response, both of the newest version; the caller converts
older ones. Brokers and the driver use the same functions on their own images, so a broker that lags behind
answers from an older image, as in Kafka.

Source: Kafka's KRaftMetadataCache and KafkaApis; KIP-430, KIP-516.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sparklog.node.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from sparklog.node.metadata.topic_names import (
    InvalidTopicNameError,
    check_topic_name,
    is_internal_topic,
    is_made_by_the_cluster,
)
from sparklog.node.responses.authorized_operations import OPERATIONS_OMITTED, TOPIC_OPERATIONS
from sparklog.node.responses.reachability import live_among, live_brokers, offline_replicas, reachable_leader
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, or_minus_one

_FIRST_VERSION_WITH_LISTENER_NOT_FOUND: Final = 6
_NEWEST_METADATA_VERSION: Final = 13


async def metadata_response(
    image: MetadataImage,
    request: Any,
    listener_name: str,
    *,
    cluster_id: str,
    controller_id: BrokerId | None = None,
    just_fenced: Sequence[BrokerRegistration] = (),
    request_version: int = _NEWEST_METADATA_VERSION,
) -> MetadataResponse:
    """Return the response to a MetadataRequest of version 13 that was sent as `request_version`.

    Yields after each topic and each partition.

    `controller_id` is the broker to which admin requests should go; a broker names itself, since it forwards
    them. Without one, the first live broker is named. A requested topic that does not exist gets an error;
    `topics_to_create` returns those for auto-creation. `just_fenced` brokers are listed although they are not
    live.
    """
    live = tuple(live_brokers(image, listener_name))
    if controller_id is None:
        controller_id = live[0][0].broker_id if live else None
    addresses = {broker.broker_id: (broker, broker.endpoint(listener_name)) for broker in just_fenced}
    addresses.update({broker.broker_id: (broker, endpoint) for broker, endpoint in live})
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_OMITTED
    topics = []
    for topic in _asked_topics(image, request):
        await turn()
        if isinstance(topic, _MissingTopic):
            topics.append(_missing_metadata_topic(topic, operations))
        else:
            topics.append(await _metadata_topic(image, topic, listener_name, request_version, operations))
    return unthrottled(
        MetadataResponse,
        brokers=tuple(
            MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for _, (broker, endpoint) in sorted(addresses.items())
            if endpoint is not None
        ),
        cluster_id=cluster_id,
        controller_id=or_minus_one(controller_id),
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )


async def advertised_leaders(image: MetadataImage, request: Any) -> Set[BrokerId]:
    """Return all leaders in the response to a MetadataRequest; yields after each topic."""
    leaders: set[BrokerId | None] = set()
    for topic in _asked_topics(image, request):
        await turn()
        if isinstance(topic, TopicImage):
            leaders.update([partition.leader for partition in topic.partitions.values()])
    return {leader for leader in leaders if leader is not None}


async def topics_to_create(image: MetadataImage, request: Any) -> tuple[str, ...]:
    """Return the topics that a MetadataRequest creates: legal names, missing, creation allowed.

    Internal topics are not among them: only their coordinators create them. Yields after each topic.
    """
    if not request.allow_auto_topic_creation or request.topics is None:
        return ()
    names = []
    for topic in _asked_topics(image, request):
        await turn()
        if (
            isinstance(topic, _MissingTopic)
            and topic.name is not None
            and topic.error_code is ErrorCode.unknown_topic_or_partition
            and not is_made_by_the_cluster(topic.name)
        ):
            names.append(topic.name)
    return tuple(names)


class _MissingTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    error_code: ErrorCode


def _asked_topics(image: MetadataImage, request: Any) -> Iterator[TopicImage | _MissingTopic]:
    """Yield the topics of a MetadataRequest, each once; if there is any id, names are ignored."""
    if request.topics is None:
        yield from image.topics.by_name.values()
        return
    topic_ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id is not None)
    if topic_ids:
        for topic_id in topic_ids:
            yield image.topics.by_id.get(topic_id) or _MissingTopic(
                None, topic_id, ErrorCode.unknown_topic_id
            )
        return
    for name in dict.fromkeys(topic.name for topic in request.topics):
        if name is None:
            yield _MissingTopic(None, None, ErrorCode.unknown_topic_id)
        else:
            yield image.topics.by_name.get(name) or _MissingTopic(name, None, error_for_missing(name))


def error_for_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopicNameError as error:
        return error.error_code
    return ErrorCode.unknown_topic_or_partition


def _missing_metadata_topic(topic: _MissingTopic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name is not None and is_internal_topic(topic.name),
        partitions=(),
        topic_authorized_operations=OPERATIONS_OMITTED if topic.name is None else operations,
    )


async def _metadata_topic(
    image: MetadataImage, topic: TopicImage, listener_name: str, request_version: int, operations: int
) -> MetadataResponseTopic:
    partitions = []
    for index, partition in sorted(topic.partitions.items()):
        await turn()
        partitions.append(_metadata_partition(image, partition, index, listener_name, request_version))
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=tuple(partitions),
        topic_authorized_operations=operations,
    )


def _metadata_partition(
    image: MetadataImage,
    partition: PartitionRegistration,
    index: int,
    listener_name: str,
    request_version: int,
) -> MetadataResponsePartition:
    leader = reachable_leader(image, partition, listener_name)
    replicas, isr = partition.replicas, partition.isr
    error_code = ErrorCode.none
    if request_version == 0:
        # Version 0 has live replicas only, and no other field for offline ones.
        replicas = tuple(live_among(image, partition.replicas, listener_name))
        isr = tuple(live_among(image, partition.isr, listener_name))
        if (replicas, isr) != (partition.replicas, partition.isr):
            error_code = ErrorCode.replica_not_available
    if leader is None:
        listener_missing = partition.leader in image.brokers
        error_code = (
            ErrorCode.listener_not_found
            if listener_missing and request_version >= _FIRST_VERSION_WITH_LISTENER_NOT_FOUND
            else ErrorCode.leader_not_available
        )
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=index,
        leader_id=or_minus_one(leader),
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(image, partition, listener_name),
    )
