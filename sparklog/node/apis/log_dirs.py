"""Log directories: their replicas, moves between them, and the assignments that brokers report."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.parts import PARTITIONS_OF_A_TOPIC, PARTITIONS_PER_PART, Parts, pieces_of_topic
from sparklog.node.apis.refusals import item, items, said
from sparklog.node.apis.row import ApiRow, Offer, always
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import KafkaError

DESCRIBE_LOG_DIRS: Final = ApiRow(
    ApiKey.DESCRIBE_LOG_DIRS, SupportedVersions(1, 5), broker=Offer(of_cluster(AclOperation.DESCRIBE))
)


def _move_refused(body: Any, error: KafkaError) -> Any:
    path = ("results", "partitions")
    results = tuple(
        item(
            body,
            "results",
            topic_name=topic.name,
            partitions=items(body, path, "partition_index", topic.partitions, error),
        )
        for directory in body.dirs
        for topic in directory.topics
    )
    return answer_to(body, results=results, **said(error))


ALTER_REPLICA_LOG_DIRS: Final = ApiRow(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    SupportedVersions(1, 2),
    broker=Offer(of_cluster(AclOperation.ALTER)),
    refused=_move_refused,
)


def _pieces_of_directory(directory: Any) -> Iterator[Any]:
    """Yield copies of a directory that together name all of its replicas."""
    topics: list[Any] = []
    size = 0
    for topic in directory.topics:
        for piece in pieces_of_topic(topic, PARTITIONS_PER_PART):
            if topics and size + len(piece.partitions) > PARTITIONS_PER_PART:
                yield replace(directory, topics=tuple(topics))
                topics, size = [], 0
            topics.append(piece)
            size += len(piece.partitions)
    yield replace(directory, topics=tuple(topics))


ASSIGN_REPLICAS_TO_DIRS: Final = ApiRow(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    controller=Offer(of_cluster(AclOperation.CLUSTER_ACTION), cluster_action=always),
    parts=Parts(
        "directories",
        "directories",
        id,
        _pieces_of_directory,
        lambda directory: (
            1 + sum(len(topic.partitions) for topic in directory.topics) // PARTITIONS_OF_A_TOPIC
        ),
    ),
)
