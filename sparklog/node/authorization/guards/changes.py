"""Guards of CreateTopics, DeleteTopics and CreatePartitions: each topic on its own.

Topics named twice go to the handler, which refuses them for every principal.
"""

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.authorization.guards.guard import (
    Answer,
    ApiGuard,
    completed,
    divided,
    filled,
    item_type,
    message_of,
    named_twice,
    with_rows,
)
from sparklog.node.authorization.guards.topics import topic_error, topic_name
from sparklog.node.serving.requests import Handler, Refusal, Request, Response
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC

_TOPIC: Final = AclResourceType.TOPIC
_FAILED: Final = ErrorCode.topic_authorization_failed
_UNKNOWN_COUNT: Final = -1


async def create_topics(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
    """Require CREATE on the cluster or on each topic; a created topic's configs need DESCRIBE_CONFIGS."""
    body = await upgrade_in_steps(request.body)
    twice = named_twice(topic.name for topic in body.topics)
    may_create_any = access.allows_on_cluster(AclOperation.CREATE, audit=False)

    def is_allowed(topic: Any) -> bool:
        return (
            may_create_any
            or topic.name in twice
            or topic.name == CLUSTER_METADATA_TOPIC
            or access.allows(AclOperation.CREATE, _TOPIC, topic.name)
        )

    allowed, denied = await divided(body.topics, is_allowed)
    request.body = replace(body, topics=tuple(allowed))

    def finish(response: Any) -> Any:
        topic_type = item_type(type(response), "topics")
        topics = [_created(access, topic) for topic in response.topics]
        topics += [
            filled(topic_type, name=topic.name, error_code=_FAILED, error_message="Authorization failed.")
            for topic in denied
        ]
        return replace(response, topics=tuple(topics))

    return completed(handler(request), finish)


def _created(access: Access, topic: Any) -> Any:
    """Return the result of a created topic, without configs that may not be described."""
    if topic.error_code is not ErrorCode.none or access.allows(
        AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic.name, audit=False
    ):
        return topic
    return replace(
        topic,
        topic_config_error_code=_FAILED,
        num_partitions=_UNKNOWN_COUNT,
        replication_factor=_UNKNOWN_COUNT,
        configs=(),
    )


def delete_topics(*, are_deleted: bool) -> ApiGuard | None:
    """Return the guard of DeleteTopics; None if topics are not deleted, for every principal."""
    return _delete_topics if are_deleted else None


async def _delete_topics(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
    """Require DELETE on the cluster, or DESCRIBE and DELETE on each topic.

    Without DESCRIBE the response reveals neither the topic's existence nor the name of its id.
    """
    if access.allows_on_cluster(AclOperation.DELETE, audit=False):
        return handler(request)
    body = await upgrade_in_steps(request.body)
    twice = named_twice((topic.name, topic.topic_id) for topic in body.topics)

    def is_allowed(topic: Any) -> bool:
        if (topic.name is None) == (topic.topic_id is None) or (topic.name, topic.topic_id) in twice:
            return True  # invalid for every principal
        if topic.name is None:
            name = topic_name(access, topic.topic_id)
            return name is not None and access.allows(AclOperation.DELETE, _TOPIC, name)
        # A topic that is not in this image is not left to the handler, whose image may be newer.
        is_there = topic.name in access.image.topics.by_name
        return access.allows(AclOperation.DESCRIBE, _TOPIC, topic.name) and access.allows(
            AclOperation.DELETE, _TOPIC, topic.name, audit=is_there
        )

    allowed, denied = await divided(body.topics, is_allowed)
    if not denied:
        return handler(request)
    request.body = replace(body, topics=tuple(allowed))

    def finish(response: Any) -> Any:
        row_type = item_type(type(response), "responses")
        rows = []
        for topic in denied:
            error_code = _not_deleted(access, topic)
            rows.append(
                filled(
                    row_type,
                    name=topic.name if topic.name is not None else _describable_name(access, topic.topic_id),
                    topic_id=topic.topic_id,
                    error_code=error_code,
                    error_message=message_of(error_code),
                )
            )
        return with_rows(response, "responses", rows)

    return completed(handler(request), finish)


def _not_deleted(access: Access, topic: Any) -> ErrorCode:
    """Return the error of a topic that is not deleted; with DESCRIBE also that it does not exist."""
    is_unknown = topic.name is not None and topic.name not in access.image.topics.by_name
    if is_unknown and access.allows(AclOperation.DESCRIBE, _TOPIC, topic.name, audit=False):
        return ErrorCode.unknown_topic_or_partition
    return topic_error(access, topic, by_id=topic.name is None)


def _describable_name(access: Access, topic_id: UUID) -> str | None:
    name = topic_name(access, topic_id)
    if name is None or not access.allows(AclOperation.DESCRIBE, _TOPIC, name):
        return None
    return name


async def create_partitions(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
    """Require ALTER on each topic."""
    twice = named_twice(topic.name for topic in request.body.topics)
    allowed, denied = await divided(
        request.body.topics,
        lambda topic: topic.name in twice or access.allows(AclOperation.ALTER, _TOPIC, topic.name),
    )
    return _partly(request, handler, allowed, denied)


def _partly(request: Request, handler: Handler, allowed: list[Any], denied: list[Any]) -> Answer:
    if not denied:
        return handler(request)
    request.body = replace(request.body, topics=tuple(allowed))

    def finish(response: Any) -> Any:
        row_type = item_type(type(response), "results")
        rows = [filled(row_type, name=topic.name, error_code=_FAILED) for topic in denied]
        return with_rows(response, "results", rows)

    return completed(handler(request), finish)
