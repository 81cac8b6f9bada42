"""What a broker knows of topics right now, as it tells by DescribeTopicPartitions (KIP-966).

Who asks for Metadata amid his work is taken for one who has lost a leader, and is kept waiting until brokers
have heard of that, too (`executor/api/metadata.py`). Who looks whether all is as it was has lost nobody.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

from sparklog.client.broker_requests import ask_side_by_side
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.topics import Leader
from sparklog.errors import ErrorCode, KafkaError


def described_topic_ids(cluster: ClusterClient, names: Iterable[str]) -> dict[str, UUID | None]:
    """Return the ids of those topics that a broker knows and may tell of; it is asked once.

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
    """Return who leads each partition of a topic; a broker is asked once, as often as it takes for all.

    Raises:
        KafkaError: it does not answer, does not know the topic, or may not tell.
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
            raise KafkaError(topic.error_code, f"topic {name} is not described")
        for each in topic.partitions:
            is_led = each.leader_id >= 0
            leaders[each.partition_index] = Leader(each.leader_id, each.leader_epoch) if is_led else None
        if answer.next_cursor is None:
            return leaders
        cursor = Cursor(topic_name=name, partition_index=answer.next_cursor.partition_index)


def _request(name: str, cursor: Cursor | None = None, limit: int = 2000) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=(TopicRequest(name=name),), response_partition_limit=limit, cursor=cursor
    )
