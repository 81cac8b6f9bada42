"""The partitions that a Fetch may read: consumers those of topics they may READ, followers all or none.

Each partition is authorized when it is read, since a session has no end. When ACLs have changed, all of a
session's partitions are checked, also unchanged ones, so that its reader gets TOPIC_AUTHORIZATION_FAILED.

Source: Kafka's KafkaApis.handleFetchRequest.
"""

from collections.abc import Callable

from sparklog.executor.api.fetch.fetch_context import FetchContext, PartitionKey
from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.protocol.errors import ErrorCode, KafkaError

MayRead = Callable[[PartitionKey], None]
"""Raises a KafkaError for what may not be read."""


def readable(access: Access, context: FetchContext) -> MayRead | None:
    """Return the check of a request's partitions; None if all may be read."""
    if context.acls is not access.image.acls:
        context.acls = access.image.acls
        context.changed.update(context.partitions)
    if context.is_follower:
        return None if access.allows_on_cluster(AclOperation.CLUSTER_ACTION) else _may_not
    topics = access.image.topics.by_id

    def may_read(key: PartitionKey) -> None:
        name = key.topic
        if not isinstance(name, str):
            topic = topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with id {name}")
            name = topic.name
        if not access.allows(AclOperation.READ, AclResourceType.TOPIC, name):
            raise _denied(name)

    return may_read


def _may_not(key: PartitionKey) -> None:
    raise _denied(str(key.topic))


def _denied(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.topic_authorization_failed, f"topic {topic} may not be read")
