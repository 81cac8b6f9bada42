"""Topic metadata by DescribeTopicPartitions (KIP-966), which returns a broker's present knowledge.

A broker takes a Metadata request in the middle of a client's work for a sign that the client has lost a
leader, and delays its answer until it has heard of the change (`executor/api/metadata.py`). A client that
only checks for changes has lost none.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

from sparklog.node.acls.acl import AclOperation
from sparklog.node.responses.authorized_operations import OPERATIONS_OMITTED
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.client.broker_requests import ask_side_by_side
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.topics import Leader

_READ: Final = 1 << AclOperation.READ


def described_topic_ids(cluster: ClusterClient, names: Iterable[str]) -> dict[str, UUID | None]:
    """Return the ids of the topics that a broker knows and may describe; it is asked once.

    Raises:
        KafkaError: it does not answer.
    """
    requests = [_request(name, limit=1) for name in names]
    found = {}
    broker_id, _ = cluster.any_channel()
    for answer in ask_side_by_side(cluster, [(broker_id, request) for request in requests]):
        if isinstance(answer, KafkaError):
            raise answer
        found.update(
            {topic.name: topic.topic_id for topic in answer.topics if topic.error_code is ErrorCode.none}
        )
    return found


def described_leaders(cluster: ClusterClient, name: str) -> Mapping[int, Leader | None]:
    """Return the leader of each partition of a topic; a broker is asked until all pages are read.

    Raises:
        KafkaError: it does not answer, does not know the topic, or may not describe it.
    """
    leaders: dict[int, Leader | None] = {}
    broker_id, _ = cluster.any_channel()
    cursor: Cursor | None = None
    while True:
        (answer,) = ask_side_by_side(cluster, [(broker_id, _request(name, cursor))])
        if isinstance(answer, KafkaError):
            raise answer
        (topic,) = answer.topics
        if topic.error_code is not ErrorCode.none:
            raise KafkaError(topic.error_code, f"topic {name} could not be described")
        for each in topic.partitions:
            is_led = each.leader_id >= 0
            leaders[each.partition_index] = Leader(each.leader_id, each.leader_epoch) if is_led else None
        if answer.next_cursor is None:
            return leaders
        cursor = Cursor(topic_name=name, partition_index=answer.next_cursor.partition_index)


def readable_topics(cluster: ClusterClient, names: Iterable[str]) -> frozenset[str]:
    """Return the topics whose records this client may fetch, by their authorized operations (KIP-430).

    A broker is asked once.

    Raises:
        KafkaError: it does not answer.
    """
    requests = [_request(name, limit=1) for name in names]
    found: set[str] = set()
    broker_id, _ = cluster.any_channel()
    for answer in ask_side_by_side(cluster, [(broker_id, request) for request in requests]):
        if isinstance(answer, KafkaError):
            raise answer
        found.update(
            topic.name
            for topic in answer.topics
            if topic.error_code is ErrorCode.none
            and topic.topic_authorized_operations != OPERATIONS_OMITTED
            and topic.topic_authorized_operations & _READ
        )
    return frozenset(found)


def _request(name: str, cursor: Cursor | None = None, limit: int = 2000) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=(TopicRequest(name=name),), response_partition_limit=limit, cursor=cursor
    )
