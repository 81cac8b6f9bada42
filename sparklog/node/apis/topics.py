"""CreateTopics, DeleteTopics and CreatePartitions: forwarded, decided topic by topic, limited by a quota."""

from typing import Any, Final

from sparklog.node.apis.parts import Parts
from sparklog.node.apis.refusals import each_item, item, said
from sparklog.node.apis.row import FORWARDED, ApiRow, GuardByConfig, Offer
from sparklog.node.authorization.guards.changes import create_partitions, create_topics, delete_topics
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import KafkaError

CREATE_TOPICS: Final = ApiRow(
    ApiKey.CREATE_TOPICS,
    SupportedVersions(2, 7),
    broker=FORWARDED,
    controller=Offer(create_topics),
    refused=each_item("topics", "topics", "name"),
    parts=Parts("topics", "topics", lambda topic: topic.name),
    strict_mutations_since=6,
    memory_times=11,
)


def _deletion_refused(body: Any, error: KafkaError) -> Any:
    responses = tuple(
        item(body, "responses", name=topic.name, topic_id=topic.topic_id, **said(error))
        for topic in upgrade(body).topics
    )
    return answer_to(body, responses=responses)


DELETE_TOPICS: Final = ApiRow(
    ApiKey.DELETE_TOPICS,
    SupportedVersions(1, 6),
    broker=FORWARDED,
    controller=Offer(GuardByConfig(lambda config: delete_topics(are_deleted=config.delete_topic_enable))),
    refused=_deletion_refused,
    parts=Parts("topics", "responses", lambda topic: (topic.name, topic.topic_id)),
    strict_mutations_since=5,
)

CREATE_PARTITIONS: Final = ApiRow(
    ApiKey.CREATE_PARTITIONS,
    SupportedVersions(0, 3),
    broker=FORWARDED,
    controller=Offer(create_partitions),
    refused=each_item("topics", "results", "name"),
    parts=Parts("topics", "results", lambda topic: topic.name),
    strict_mutations_since=3,
)
