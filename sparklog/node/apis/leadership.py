"""ElectLeaders and the reassignment of replicas: changes of partitions that an administrator asks for."""

from typing import Any, Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.parts import (
    PARTITIONS_OF_A_TOPIC,
    PARTITIONS_PER_PART,
    TOPICS_PER_PART,
    Parts,
    pieces_of_topic,
)
from sparklog.node.apis.refusals import each_topic, item, items, said
from sparklog.node.apis.row import FORWARDED, ApiRow, Offer
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import KafkaError


def _election_refused(body: Any, error: KafkaError) -> Any:
    field = "replica_election_results"
    results = tuple(
        item(
            body,
            field,
            topic=topic.topic,
            partition_result=items(
                body, (field, "partition_result"), "partition_id", topic.partitions, error
            ),
        )
        for topic in body.topic_partitions or ()
    )
    return answer_to(body, replica_election_results=results, **said(error))


ELECT_LEADERS: Final = ApiRow(
    ApiKey.ELECT_LEADERS,
    SupportedVersions(0, 2),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.ALTER)),
    refused=_election_refused,
    parts=Parts(
        "topic_partitions",
        "replica_election_results",
        lambda topic: (topic.topic, topic.partitions),
        lambda topic: pieces_of_topic(topic, PARTITIONS_PER_PART),
        lambda topic: 1 + len(topic.partitions) // PARTITIONS_OF_A_TOPIC,
    ),
    memory_times=14,
)

ALTER_PARTITION_REASSIGNMENTS: Final = ApiRow(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    SupportedVersions(0, 1),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.ALTER)),
    refused=each_topic("responses"),
    parts=Parts(
        "topics",
        "responses",
        lambda topic: (topic.name, tuple(partition.partition_index for partition in topic.partitions)),
        lambda topic: pieces_of_topic(topic, TOPICS_PER_PART),
        lambda topic: max(1, len(topic.partitions)),
    ),
)


def _listing_refused(body: Any, error: KafkaError) -> Any:
    """Name the partitions of the request, as Kafka does: the response has one error for all of them."""
    topics = tuple(
        item(
            body,
            "topics",
            name=topic.name,
            partitions=tuple(
                item(body, "topics", "partitions", partition_index=number)
                for number in topic.partition_indexes
            ),
        )
        for topic in body.topics or ()
    )
    return answer_to(body, topics=topics, **said(error))


LIST_PARTITION_REASSIGNMENTS: Final = ApiRow(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    SupportedVersions(0, 0),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.DESCRIBE)),
    refused=_listing_refused,
)
