"""The cluster as a whole: its brokers, its topics as clients see them, its features."""

from typing import Any, Final

from sparklog.node.acls.acl import AclOperation
from sparklog.node.apis.refusals import each_item, item
from sparklog.node.apis.row import FORWARDED, ApiRow, GuardByConfig, Offer
from sparklog.node.authorization.guards.cluster import (
    describe_cluster,
    describe_cluster_by_controller,
    of_cluster,
)
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.node.authorization.guards.metadata import metadata
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError

_METADATA_GUARD: Final = GuardByConfig(
    lambda config: metadata(creates_topics=config.auto_create_topics_enable)
)


def unnamed_topics() -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, "a topic has no name, or an id in a version without")


async def _metadata_refused(body: Any, error: KafkaError) -> Any:
    topics = []
    for topic in body.topics or ():
        await turn()
        topic_id = getattr(topic, "topic_id", None)
        topics.append(
            item(body, "topics", name=topic.name or "", topic_id=topic_id, error_code=error.error_code)
        )
    return answer_to(
        body,
        cluster_id=None,
        controller_id=-1,
        topics=tuple(topics),
        error_code=error.error_code,
    )


METADATA: Final = ApiRow(
    ApiKey.METADATA,
    SupportedVersions(0, 13),
    broker=Offer(_METADATA_GUARD),
    controller=Offer(_METADATA_GUARD),
    also_in_envelope=True,
    refused=_metadata_refused,
)

DESCRIBE_CLUSTER: Final = ApiRow(
    ApiKey.DESCRIBE_CLUSTER,
    SupportedVersions(0, 2),
    broker=Offer(describe_cluster),
    controller=Offer(describe_cluster_by_controller, many=False),
    also_in_envelope=True,
)

DESCRIBE_TOPIC_PARTITIONS: Final = ApiRow(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    SupportedVersions(0, 0),
    broker=Offer(answers_errors=True),
    controller=Offer(),
    also_in_envelope=True,
    refused=each_item("topics", "topics", "name"),
)

UPDATE_FEATURES: Final = ApiRow(
    ApiKey.UPDATE_FEATURES,
    # From version 2 on an answer has one error for all features.
    SupportedVersions(1, 1),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.ALTER), many=False),
)

UNREGISTER_BROKER: Final = ApiRow(
    ApiKey.UNREGISTER_BROKER,
    SupportedVersions(0, 0),
    broker=FORWARDED,
    controller=Offer(of_cluster(AclOperation.ALTER), many=False),
)
