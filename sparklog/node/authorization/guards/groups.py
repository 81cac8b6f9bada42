"""Guards of requests about groups and their committed offsets."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.authorization.guards.guard import (
    Answer,
    ApiGuard,
    answer_of,
    completed,
    denial,
    divided,
    filled,
    item_type,
    message_of,
    with_rows,
)
from sparklog.node.authorization.guards.topics import topic_error, topic_name
from sparklog.node.metadata.partition_for import CoordinatorType
from sparklog.node.serving.requests import Handler, Refusal, Request, Response
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode

_GROUP: Final = AclResourceType.GROUP
_TOPIC: Final = AclResourceType.TOPIC
_DESCRIBE: Final = AclOperation.DESCRIBE
_FAILED: Final = ErrorCode.group_authorization_failed
_FIRST_OFFSET_FETCH_OF_GROUPS: Final = 8
_FIRST_OFFSET_FETCH_BY_ID: Final = 10


def of_groups(operation: AclOperation, asked: str, answered: str) -> ApiGuard:
    """Return the guard that requires `operation` on each group, and adds the authorized operations."""

    async def guard(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
        rest, denied = await _groups_divided(access, request, operation, asked)
        return completed(
            handler(rest), lambda response: _with_groups(access, request, response, answered, denied)
        )

    return guard


async def consumer_group_describe(
    refuse: Refusal, access: Access, request: Request, handler: Handler
) -> Response:
    """Require DESCRIBE on each group, and on each topic that its members have."""
    rest, denied = await _groups_divided(access, request, _DESCRIBE, "group_ids")

    async def finish(response: Any) -> Response:
        groups = []
        for group in response.groups:
            await turn()
            groups.append(_described(access, group))
        return _with_groups(access, request, replace(response, groups=tuple(groups)), "groups", denied)

    return completed(handler(rest), finish)


async def _groups_divided(
    access: Access, request: Request, operation: AclOperation, asked: str
) -> tuple[Request, list[str]]:
    allowed, denied = await divided(
        getattr(request.body, asked), lambda group_id: access.allows(operation, _GROUP, group_id)
    )
    if denied:
        request.body = replace(request.body, **{asked: tuple(allowed)})
    return request, list(dict.fromkeys(denied))


def _with_groups(access: Access, request: Request, response: Any, answered: str, denied: list[str]) -> Any:
    if getattr(request.body, "include_authorized_operations", False):
        groups = [
            replace(group, authorized_operations=access.operations(_GROUP, group.group_id))
            if group.error_code is ErrorCode.none
            else group
            for group in getattr(response, answered)
        ]
        response = replace(response, **{answered: tuple(groups)})
    group_type = item_type(type(response), answered)
    rows = [filled(group_type, group_id=group_id, error_code=_FAILED) for group_id in denied]
    return with_rows(response, answered, rows)


def _described(access: Access, group: Any) -> Any:
    """Return the group, or its refusal if it has topics that may not be described."""
    names = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if all(access.allows(_DESCRIBE, _TOPIC, name) for name in names):
        return group
    return filled(
        type(group),
        group_id=group.group_id,
        error_code=ErrorCode.topic_authorization_failed,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


def list_groups(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
    """List all groups with DESCRIBE on the cluster, and otherwise the groups with DESCRIBE on them."""
    if access.allows_on_cluster(_DESCRIBE, audit=False):
        return handler(request)

    async def finish(response: Any) -> Response:
        seen, _ = await divided(
            response.groups, lambda group: access.allows(_DESCRIBE, _GROUP, group.group_id, audit=False)
        )
        return replace(response, groups=tuple(seen))

    return completed(handler(request), finish)


async def consumer_group_heartbeat(
    refuse: Refusal, access: Access, request: Request, handler: Handler
) -> Response:
    """Require READ on the group, and DESCRIBE on all topics that the member names."""
    body = request.body
    if not access.allows(AclOperation.READ, _GROUP, body.group_id):
        return refuse(request, denial(_FAILED))
    names = dict.fromkeys(body.subscribed_topic_names or ())
    _, denied = await divided(names, lambda name: access.allows(_DESCRIBE, _TOPIC, name))
    if denied:
        return answer_of(request, error_code=ErrorCode.topic_authorization_failed)
    return handler(request)


async def offset_fetch(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
    """Require DESCRIBE on each group and each topic; a request for all topics gets those with DESCRIBE."""
    by_groups = request.api_version >= _FIRST_OFFSET_FETCH_OF_GROUPS
    by_id = request.api_version >= _FIRST_OFFSET_FETCH_BY_ID
    rest: list[Any] = []
    denied_groups: list[Any] = []
    denied_topics: dict[str, list[Any]] = {}

    def is_seen(topic: Any, *, audit: bool = True) -> bool:
        name = topic_name(access, topic.topic_id) if by_id else topic.name
        return name is not None and access.allows(_DESCRIBE, _TOPIC, name, audit=audit)

    for group in request.body.groups if by_groups else (request.body,):
        await turn()
        if not access.allows(_DESCRIBE, _GROUP, group.group_id):
            denied_groups.append(group)
            continue
        seen, denied = await divided(group.topics or (), is_seen)
        if denied:
            denied_topics.setdefault(group.group_id, []).extend(denied)
            rest.append(replace(group, topics=tuple(seen)))
        else:
            rest.append(group)
    all_topics_of = {group.group_id for group in rest if group.topics is None}
    if not by_groups:
        if denied_groups:
            return _group_refused_before_groups(request)
        request.body = rest[0]
    elif denied_groups or denied_topics:
        request.body = replace(request.body, groups=tuple(rest))
    if not (denied_groups or denied_topics or all_topics_of):
        return handler(request)

    async def finish(response: Any) -> Response:
        if not by_groups:
            group_id = request.body.group_id
            return await group_finished(response, group_id, type(response))
        group_type = item_type(type(response), "groups")
        groups = []
        for group in response.groups:
            groups.append(await group_finished(group, group.group_id, group_type))
        for group in denied_groups:
            groups.append(filled(group_type, group_id=group.group_id, error_code=_FAILED))
        return replace(response, groups=tuple(groups))

    async def group_finished(group: Any, group_id: str, group_type: type[Any]) -> Any:
        if getattr(group, "error_code", ErrorCode.none) is not ErrorCode.none:
            return group
        if group_id in all_topics_of:
            seen, _ = await divided(group.topics, partial(is_seen, audit=False))
            group = replace(group, topics=tuple(seen))
        rows = _refused_topics(
            item_type(group_type, "topics"),
            denied_topics.get(group_id, ()),
            lambda topic: topic_error(access, topic, by_id=by_id),
        )
        return with_rows(group, "topics", rows)

    return completed(handler(request), finish)


def _refused_topics(
    topic_type: type[Any],
    topics: Iterable[Any],
    error_of: Callable[[Any], ErrorCode],
) -> Iterator[Any]:
    partition_type = item_type(topic_type, "partitions")
    for topic in topics:
        error_code = error_of(topic)
        yield filled(
            topic_type,
            name=getattr(topic, "name", ""),
            topic_id=getattr(topic, "topic_id", None),
            partitions=tuple(
                filled(
                    partition_type,
                    partition_index=index,
                    committed_offset=-1,
                    metadata="",
                    error_code=error_code,
                )
                for index in topic.partition_indexes
            ),
        )


def _group_refused_before_groups(request: Request) -> Any:
    """Return the response of a version with one group; version 1 has the error in each partition."""
    response = answer_of(request, error_code=_FAILED)
    if hasattr(response, "error_code"):
        return response
    topic_type = item_type(type(response), "topics")
    return with_rows(response, "topics", _refused_topics(topic_type, request.body.topics, lambda _: _FAILED))


async def find_coordinator(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Response:
    """Require DESCRIBE on each group or transactional id; what a version lacks is refused first."""
    body = request.body
    key_type = getattr(body, "key_type", CoordinatorType.GROUP)
    if key_type == CoordinatorType.SHARE and request.api_version >= _FIRST_OF_SHARE_KEYS:
        if not access.allows_on_cluster(AclOperation.CLUSTER_ACTION):
            return refuse(request, denial(ErrorCode.cluster_authorization_failed))
        return handler(request)
    resource_type, error_code = _COORDINATED.get(key_type, (None, ErrorCode.none))
    if resource_type is None:
        return handler(request)

    def is_allowed(key: str) -> bool:
        return access.allows(_DESCRIBE, resource_type, key)

    if not hasattr(body, "coordinator_keys"):
        return handler(request) if is_allowed(body.key) else refuse(request, denial(error_code))
    allowed, denied = await divided(body.coordinator_keys, is_allowed)
    if not denied:
        return handler(request)
    request.body = replace(body, coordinator_keys=tuple(allowed))

    def finish(response: Any) -> Any:
        make = item_type(type(response), "coordinators")
        said = {"error_code": error_code, "error_message": message_of(error_code)}
        rows = [filled(make, key=key, node_id=-1, host="", port=-1, **said) for key in denied]
        return with_rows(response, "coordinators", rows)

    return completed(handler(request), finish)


_FIRST_OF_SHARE_KEYS: Final = 6
_COORDINATED: Final = {
    CoordinatorType.GROUP: (_GROUP, _FAILED),
    CoordinatorType.TRANSACTION: (
        AclResourceType.TRANSACTIONAL_ID,
        ErrorCode.transactional_id_authorization_failed,
    ),
}
