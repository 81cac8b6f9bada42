"""The guard of Metadata: topics without DESCRIBE are left out, or refused where named.

A principal with DESCRIBE on all topics that asks for all of them gets the cached response.
"""

from dataclasses import replace
from typing import Any, Final

from kio.schema.metadata.v13.request import MetadataRequestTopic

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.authorization.guards.cluster import cluster_operations
from sparklog.node.authorization.guards.guard import (
    ApiGuard,
    completed,
    divided,
    filled,
    item_type,
    with_rows,
)
from sparklog.node.authorization.guards.topics import topic_error, topic_name
from sparklog.node.metadata.topic_names import are_topics_named, is_internal_topic
from sparklog.node.serving.requests import Handler, Refusal, Request, Response
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.codec.versions import downgrade_in_steps, upgrade_in_steps
from sparklog.protocol.errors import ErrorCode

_TOPIC: Final = AclResourceType.TOPIC
_DESCRIBE: Final = AclOperation.DESCRIBE
_FAILED: Final = ErrorCode.topic_authorization_failed


def metadata(*, creates_topics: bool) -> ApiGuard:
    """Return the guard; with `creates_topics`, a request may create its topics, and needs CREATE then."""

    async def guard(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
        asks_of_cluster = getattr(request.body, "include_cluster_authorized_operations", False)
        body = await upgrade_in_steps(request.body)
        if not are_topics_named(body.topics, request.api_version):
            return handler(request)  # which refuses it for every principal
        names = access.image.topics.by_name
        rows: list[dict[str, Any]] = []
        is_of_all = body.topics is None
        if is_of_all:
            seen, hidden = await divided(
                names, lambda name: access.allows(_DESCRIBE, _TOPIC, name, audit=False)
            )
            if not (hidden or body.include_topic_authorized_operations or asks_of_cluster):
                return handler(request)
            topics = tuple(MetadataRequestTopic(topic_id=None, name=name) for name in seen)
            request.body = replace(body, topics=topics, allow_auto_topic_creation=False)
        else:
            topics = await _named(
                access, body, rows, creates_topics=creates_topics and body.allow_auto_topic_creation
            )
            request.body = replace(body, topics=topics)

        async def finish(response: Any) -> Response:
            shown = response.topics
            if is_of_all:  # a topic deleted meanwhile was not named
                unknown = ErrorCode.unknown_topic_or_partition
                shown = tuple(topic for topic in shown if topic.error_code is not unknown)
            if body.include_topic_authorized_operations:
                shown = await _with_operations(access, shown)
            topic_type = item_type(type(response), "topics")
            response = replace(response, topics=shown)
            response = with_rows(response, "topics", [filled(topic_type, **row) for row in rows])
            if asks_of_cluster:
                response = await downgrade_in_steps(response, request.api_version)
                response = replace(response, cluster_authorized_operations=cluster_operations(access))
            return response

        return completed(handler(request), finish)

    return guard


async def _named(
    access: Access, body: Any, rows: list[dict[str, Any]], *, creates_topics: bool
) -> tuple[Any, ...]:
    """Return the topics with DESCRIBE; the results of the others go into `rows`."""
    by_id = [topic for topic in body.topics if topic.topic_id is not None]
    if by_id:

        def is_seen(topic: Any) -> bool:
            name = topic_name(access, topic.topic_id)
            return name is not None and access.allows(_DESCRIBE, _TOPIC, name)

        seen, hidden = await divided({topic.topic_id: topic for topic in by_id}.values(), is_seen)
        rows += [
            {
                "name": None,
                "topic_id": topic.topic_id,
                "error_code": topic_error(access, topic, by_id=True),
            }
            for topic in hidden
        ]
        return tuple(seen)
    described, hidden = await divided(
        {topic.name: topic for topic in body.topics}.values(),
        lambda topic: topic.name is None or access.allows(_DESCRIBE, _TOPIC, topic.name),
    )
    rows += [{"name": topic.name, "error_code": _FAILED} for topic in hidden]
    if not creates_topics or access.allows_on_cluster(AclOperation.CREATE, audit=False):
        return tuple(described)
    there = access.image.topics.by_name
    creatable, refused = await divided(
        described,
        lambda topic: (
            topic.name is None
            or topic.name in there
            or access.allows(AclOperation.CREATE, _TOPIC, topic.name)
        ),
    )
    rows += [
        {"name": topic.name, "is_internal": is_internal_topic(topic.name), "error_code": _FAILED}
        for topic in refused
    ]
    return tuple(creatable)


async def _with_operations(access: Access, topics: tuple[Any, ...]) -> tuple[Any, ...]:
    shown = []
    for topic in topics:
        await turn()
        if topic.name is None:
            shown.append(topic)
        else:
            operations = access.operations(_TOPIC, topic.name)
            shown.append(replace(topic, topic_authorized_operations=operations))
    return tuple(shown)
