"""Responses to DescribeTopicPartitions, page by page.

Pure functions of an image and a request. Source: Kafka's DescribeTopicPartitionsRequestHandler; KIP-966.
"""

from collections.abc import Iterable
from typing import Any

from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.node.metadata.topic_names import is_internal_topic
from sparklog.node.responses.authorized_operations import TOPIC_OPERATIONS
from sparklog.node.responses.metadata import error_for_missing
from sparklog.node.responses.reachability import offline_replicas, reachable_leader
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import or_minus_one


async def describe_topic_partitions_response(
    image: MetadataImage,
    request: Any,
    listener_name: str,
    *,
    max_partitions: int,
    access: Access | None = None,
) -> DescribeTopicPartitionsResponse:
    """Return one page of the response to a DescribeTopicPartitionsRequest: topics by name, then partitions.

    Yields after each topic and each partition. `max_partitions` is max.request.partition.size.limit; the
    request may ask for smaller pages. With `access`, topics that the client may not describe are left out, or
    refused if the request names them; refused ones do not count for the page.

    Raises:
        KafkaError: INVALID_REQUEST, the cursor is not in the requested topics, or negative.
    """
    cursor = request.cursor
    first_topic = "" if cursor is None else cursor.topic_name
    asked = image.topics.by_name.keys() if not request.topics else {topic.name for topic in request.topics}
    names = sorted(name for name in asked if name >= first_topic)
    if cursor is not None:
        if request.topics and first_topic not in asked:
            raise KafkaError(ErrorCode.invalid_request, f"the cursor's topic {first_topic} is not requested")
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.invalid_request, f"the cursor's partition is {cursor.partition_index}")
    hidden: list[str] = []
    if access is not None:
        names, hidden = await _seen(names, access, audit=bool(request.topics))
    left = max(min(max_partitions, request.response_partition_limit), 1)
    described: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    for name in names:
        await turn()
        if left == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            if request.topics:
                described.append(_missing_described_topic(name, _operations(access, name)))
            continue
        first = cursor.partition_index if cursor is not None and name == first_topic else 0
        end = min(len(topic.partitions), first + left)
        partitions = []
        for index in range(first, end):
            await turn()
            partitions.append(_described_partition(image, topic.partitions[index], index, listener_name))
        described.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.none,
                name=name,
                topic_id=topic.topic_id,
                is_internal=is_internal_topic(name),
                partitions=tuple(partitions),
                topic_authorized_operations=_operations(access, name),
            )
        )
        left -= len(partitions)
        if end < len(topic.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    if request.topics:
        described += [
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.topic_authorization_failed, name=name, topic_id=None, partitions=()
            )
            for name in hidden
        ]
    return unthrottled(DescribeTopicPartitionsResponse, topics=tuple(described), next_cursor=next_cursor)


async def _seen(names: Iterable[str], access: Access, *, audit: bool) -> tuple[list[str], list[str]]:
    """Divide topics into those that the principal may describe, and the others; a turn for each."""
    seen: list[str] = []
    hidden: list[str] = []
    for name in names:
        await turn()
        is_seen = access.allows(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, audit=audit)
        (seen if is_seen else hidden).append(name)
    return seen, hidden


def _operations(access: Access | None, topic: str) -> int:
    return TOPIC_OPERATIONS if access is None else access.operations(AclResourceType.TOPIC, topic)


def _missing_described_topic(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error_for_missing(name),
        name=name,
        topic_id=None,
        is_internal=is_internal_topic(name),
        partitions=(),
        topic_authorized_operations=operations,
    )


def _described_partition(
    image: MetadataImage, partition: PartitionRegistration, index: int, listener_name: str
) -> DescribeTopicPartitionsResponsePartition:
    leader = reachable_leader(image, partition, listener_name)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.none,
        partition_index=index,
        leader_id=or_minus_one(leader),
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.elr,
        last_known_elr=partition.last_known_elr,
        offline_replicas=offline_replicas(image, partition, listener_name),
    )
