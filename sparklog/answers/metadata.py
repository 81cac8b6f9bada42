"""What clients are told about the cluster: answers to Metadata, DescribeCluster, DescribeTopicPartitions.

Pure functions from an image and a request to a response, both of the newest version; whoever serves older
ones converts. Brokers and the driver answer with the same functions from their own images, so a broker that
lags behind answers from its past, as in Kafka.

A listener name selects the addresses: a client is told of brokers at the listener it came in through.
Source: Kafka's KRaftMetadataCache, KafkaApis and DescribeTopicPartitionsRequestHandler; KIP-430, KIP-516,
KIP-700, KIP-919, KIP-966.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sparklog.endpoints import Endpoint
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from sparklog.metadata.topic_names import (
    InvalidTopicNameError,
    check_topic_name,
    is_internal_topic,
    is_made_by_the_cluster,
)
from sparklog.types import BrokerId
from sparklog.wire.requests import Request
from sparklog.wire.throttling import unthrottled

__all__ = [
    "ControllerNode",
    "describe_cluster_response",
    "describe_topic_partitions_response",
    "leaders_told",
    "metadata_response",
    "refuse_topic_partitions",
    "topics_to_create",
]

NO_NODE: Final = -1
OPERATIONS_OMITTED: Final = -(2**31)
# Without an authorizer everybody may do everything: one bit an AclOperation that the resource has.
TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_FIRST_VERSION_WITH_LISTENER_NOT_FOUND: Final = 6
_NEWEST_METADATA_VERSION: Final = 13


class ControllerNode(NamedTuple):
    """A controller and where it listens."""

    controller_id: int
    endpoint: Endpoint


def metadata_response(
    image: MetadataImage,
    request: Any,
    listener_name: str,
    *,
    cluster_id: str,
    controller_id: BrokerId | None = None,
    departed: Sequence[BrokerRegistration] = (),
    request_version: int = _NEWEST_METADATA_VERSION,
) -> Generator[None, None, MetadataResponse]:
    """Return the answer to a MetadataRequest of version 13 that was asked in `request_version`.

    Yields after each topic and each partition.

    `controller_id` is the broker that admin requests should go to; a broker names itself, as it forwards
    them. Without one, the first live broker is named. A topic asked for by name that does not exist is
    answered with an error; `topics_to_create` says which of them auto-creation should make.
    `departed` are brokers that are listed although they are not live.
    """
    live = tuple(_live_brokers(image, listener_name))
    if controller_id is None:
        controller_id = live[0][0].broker_id if live else NO_NODE
    addresses = {broker.broker_id: (broker, broker.endpoint(listener_name)) for broker in departed}
    addresses.update({broker.broker_id: (broker, endpoint) for broker, endpoint in live})
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_OMITTED
    topics = []
    for topic in _asked_topics(image, request):
        yield
        if isinstance(topic, _MissingTopic):
            topics.append(_missing_metadata_topic(topic, operations))
        else:
            topics.append(
                (yield from _metadata_topic(image, topic, listener_name, request_version, operations))
            )
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
        controller_id=controller_id,
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )


def leaders_told(image: MetadataImage, request: Any) -> Generator[None, None, Set[BrokerId]]:
    """Return all whom the answer to a MetadataRequest names as leaders; yields after each topic."""
    leaders: set[BrokerId | None] = set()
    for topic in _asked_topics(image, request):
        yield
        if isinstance(topic, TopicImage):
            leaders.update([partition.leader for partition in topic.partitions.values()])
    return {leader for leader in leaders if leader is not None}


def topics_to_create(image: MetadataImage, request: Any) -> Generator[None, None, tuple[str, ...]]:
    """Return the names that a MetadataRequest asks to be created: legal, not there, creation allowed.

    Internal topics are not among them: asking for one is no reason for its owner to make it. Yields after
    each topic.
    """
    if not request.allow_auto_topic_creation or request.topics is None:
        return ()
    names = []
    for topic in _asked_topics(image, request):
        yield
        if (
            isinstance(topic, _MissingTopic)
            and topic.name is not None
            and topic.error_code is ErrorCode.unknown_topic_or_partition
            and not is_made_by_the_cluster(topic.name)
        ):
            names.append(topic.name)
    return tuple(names)


def describe_cluster_response(
    image: MetadataImage,
    request: Any,
    listener_name: str,
    *,
    cluster_id: str,
    controller_id: BrokerId | None = None,
    controllers: Sequence[ControllerNode] = (),
) -> DescribeClusterResponse:
    """Return the answer to a DescribeClusterRequest of version 2.

    Controllers are described only by a node that knows them (`controllers`), which is a controller.
    """
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_OMITTED
    error_code, error_message = ErrorCode.none, None
    nodes: tuple[DescribeClusterBroker, ...] = ()
    if request.endpoint_type == _BROKERS:
        nodes = tuple(
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker, endpoint in _brokers_with(image, listener_name)
            if request.include_fenced_brokers or not broker.fenced
        )
        if controller_id is None:
            live = next(_live_brokers(image, listener_name), None)
            controller_id = None if live is None else live[0].broker_id
    elif request.endpoint_type != _CONTROLLERS:
        error_code = ErrorCode.unsupported_endpoint_type
        error_message = f"endpoint type {request.endpoint_type}; 1 is brokers, 2 is controllers"
    elif not controllers:
        error_code = ErrorCode.mismatched_endpoint_type
        error_message = "this is a broker; controllers are described by controllers"
    else:
        nodes = tuple(
            DescribeClusterBroker(
                broker_id=controller.controller_id,
                host=controller.endpoint.host,
                port=controller.endpoint.port,
                rack=None,
                is_fenced=False,
            )
            for controller in controllers
        )
        if controller_id is None:
            controller_id = controllers[0].controller_id
    return unthrottled(
        DescribeClusterResponse,
        error_code=error_code,
        error_message=error_message,
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=NO_NODE if controller_id is None else controller_id,
        brokers=nodes,
        cluster_authorized_operations=operations,
    )


def refuse_topic_partitions(request: Request, error: KafkaError) -> DescribeTopicPartitionsResponse:
    """Return the answer to a DescribeTopicPartitionsRequest that is refused as a whole."""
    topics = [
        DescribeTopicPartitionsResponseTopic(
            error_code=error.error_code, name=topic.name, topic_id=None, partitions=()
        )
        for topic in request.body.topics
    ]
    return unthrottled(DescribeTopicPartitionsResponse, topics=tuple(topics))


def describe_topic_partitions_response(
    image: MetadataImage, request: Any, listener_name: str, *, max_partitions: int
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    """Return one page of the answer to a DescribeTopicPartitionsRequest: topics by name, then partitions.

    Yields after each topic and each partition.

    `max_partitions` is max.request.partition.size.limit; the request may ask for fewer a page.

    Raises:
        KafkaError: INVALID_REQUEST, the cursor is not in the topics asked for, or negative.
    """
    cursor = request.cursor
    first_topic = "" if cursor is None else cursor.topic_name
    asked = image.topics.by_name.keys() if not request.topics else {topic.name for topic in request.topics}
    names = sorted(name for name in asked if name >= first_topic)
    if cursor is not None:
        if request.topics and first_topic not in asked:
            raise KafkaError(ErrorCode.invalid_request, f"the cursor's topic {first_topic} is not asked for")
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.invalid_request, f"the cursor's partition is {cursor.partition_index}")
    left = max(min(max_partitions, request.response_partition_limit), 1)
    described: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    for name in names:
        yield
        if left == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            if request.topics:
                described.append(_missing_described_topic(name))
            continue
        first = cursor.partition_index if cursor is not None and name == first_topic else 0
        end = min(len(topic.partitions), first + left)
        partitions = []
        for index in range(first, end):
            yield
            partitions.append(_described_partition(image, topic.partitions[index], index, listener_name))
        described.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.none,
                name=name,
                topic_id=topic.topic_id,
                is_internal=is_internal_topic(name),
                partitions=tuple(partitions),
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        left -= len(partitions)
        if end < len(topic.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return unthrottled(DescribeTopicPartitionsResponse, topics=tuple(described), next_cursor=next_cursor)


class _MissingTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    error_code: ErrorCode


def _asked_topics(image: MetadataImage, request: Any) -> Iterator[TopicImage | _MissingTopic]:
    """Yield the topics of a MetadataRequest, each once; if any id is given, names are not looked at."""
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
            yield image.topics.by_name.get(name) or _MissingTopic(name, None, _error_for_missing(name))


def _error_for_missing(name: str) -> ErrorCode:
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


def _metadata_topic(
    image: MetadataImage, topic: TopicImage, listener_name: str, request_version: int, operations: int
) -> Generator[None, None, MetadataResponseTopic]:
    partitions = []
    for index, partition in sorted(topic.partitions.items()):
        yield
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
    leader = _reachable_leader(image, partition, listener_name)
    replicas, isr = partition.replicas, partition.isr
    error_code = ErrorCode.none
    if request_version == 0:
        # Version 0 shows live replicas only, and has no other way to say that some are not.
        replicas = tuple(_live_among(image, partition.replicas, listener_name))
        isr = tuple(_live_among(image, partition.isr, listener_name))
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
        leader_id=NO_NODE if leader is None else leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=_offline_replicas(image, partition, listener_name),
    )


def _missing_described_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=_error_for_missing(name),
        name=name,
        topic_id=None,
        is_internal=is_internal_topic(name),
        partitions=(),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described_partition(
    image: MetadataImage, partition: PartitionRegistration, index: int, listener_name: str
) -> DescribeTopicPartitionsResponsePartition:
    leader = _reachable_leader(image, partition, listener_name)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.none,
        partition_index=index,
        leader_id=NO_NODE if leader is None else leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
        offline_replicas=_offline_replicas(image, partition, listener_name),
    )


def _brokers_with(image: MetadataImage, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoint(listener_name)
        if endpoint is not None:
            yield broker, endpoint


def _live_brokers(image: MetadataImage, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
    return (pair for pair in _brokers_with(image, listener_name) if not pair[0].fenced)


def _live_among(
    image: MetadataImage, broker_ids: Iterable[BrokerId], listener_name: str
) -> Iterator[BrokerId]:
    for broker_id in broker_ids:
        broker = image.brokers.get(broker_id)
        if broker is not None and not broker.fenced and broker.endpoint(listener_name) is not None:
            yield broker_id


def _reachable_leader(
    image: MetadataImage, partition: PartitionRegistration, listener_name: str
) -> BrokerId | None:
    if partition.leader is None:
        return None
    broker = image.brokers.get(partition.leader)
    if broker is None or broker.endpoint(listener_name) is None:
        return None
    return partition.leader


def _offline_replicas(
    image: MetadataImage, partition: PartitionRegistration, listener_name: str
) -> tuple[BrokerId, ...]:
    offline = []
    for broker_id, directory_id in zip(partition.replicas, partition.directories, strict=True):
        broker = image.brokers.get(broker_id)
        if (
            broker is None
            or broker.fenced
            or broker.endpoint(listener_name) is None
            or not broker.has_online_directory(directory_id)
        ):
            offline.append(broker_id)
    return tuple(offline)
