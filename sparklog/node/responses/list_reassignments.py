"""Responses to ListPartitionReassignments.

Pure functions of an image and a request. Source: Kafka's ReplicationControlManager; KIP-455.
"""

from collections.abc import Iterable
from typing import Any

from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from sparklog.node.metadata.image import MetadataImage, TopicImage
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode


async def list_reassignments_response(
    image: MetadataImage, request: Any
) -> ListPartitionReassignmentsResponse:
    """Return the ongoing reassignments of the requested partitions (all, if none are named).

    Other partitions, and missing ones, are left out. Yields after each topic and each partition.
    """
    by_name = image.topics.by_name
    asked: Iterable[tuple[TopicImage, Iterable[int]]]
    if request.topics is None:
        asked = ((topic, topic.partitions) for topic in by_name.values())
    else:
        asked = (
            (by_name[named.name], dict.fromkeys(named.partition_indexes))
            for named in request.topics
            if named.name in by_name
        )
    topics = []
    for topic, numbers in asked:
        await turn()
        partitions = []
        for number in numbers:
            await turn()
            partition = topic.partitions.get(number)
            if partition is not None and partition.is_reassigning:
                partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=number,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding_replicas,
                        removing_replicas=partition.removing_replicas,
                    )
                )
        if partitions:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=tuple(partitions)))
    return unthrottled(
        ListPartitionReassignmentsResponse,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(topics),
    )
