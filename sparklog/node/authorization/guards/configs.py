"""Guards of requests about configurations: each resource is checked by its type."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.node.authorization.guards.guard import (
    completed,
    divided,
    filled,
    item_type,
    message_of,
    named_twice,
    with_rows,
)
from sparklog.node.metadata.schemas import ResourceType
from sparklog.node.serving.requests import Handler, Refusal, Request, Response
from sparklog.protocol.errors import ErrorCode

_CLUSTER: Final = (AclResourceType.CLUSTER, ErrorCode.cluster_authorization_failed)
_ASKED: Final = {
    ResourceType.TOPIC: (AclResourceType.TOPIC, ErrorCode.topic_authorization_failed),
    ResourceType.GROUP: (AclResourceType.GROUP, ErrorCode.group_authorization_failed),
    ResourceType.BROKER: _CLUSTER,
    ResourceType.BROKER_LOGGER: _CLUSTER,
    ResourceType.CLIENT_METRICS: _CLUSTER,
}
"""Checked resource type and error of a denial, by type. Others are invalid resource types."""

_DELETE: Final = 1
"""The operation of an incremental change that deletes a key, and needs no value."""


def of_described_resources(
    refuse: Refusal, access: Access, request: Request, handler: Handler
) -> Awaitable[Response]:
    return _of_resources(access, request, handler, AclOperation.DESCRIBE_CONFIGS, "results", lambda _: None)


def of_altered_resources(
    refuse: Refusal, access: Access, request: Request, handler: Handler
) -> Awaitable[Response]:
    """Require ALTER_CONFIGS on each resource.

    An invalid change is refused as such first, as by Kafka's ConfigAdminManager.
    """
    twice = named_twice((each.resource_type, each.resource_name) for each in request.body.resources)

    def problem(resource: Any) -> str | None:
        if (resource.resource_type, resource.resource_name) in twice:
            return "Each resource must appear at most once."
        if named_twice(config.name for config in resource.configs):
            return "Error due to duplicate config keys"
        nulls = [config.name for config in resource.configs if config.value is None and not _deletes(config)]
        return f"Null value not supported for : {','.join(nulls)}" if nulls else None

    return _of_resources(access, request, handler, AclOperation.ALTER_CONFIGS, "responses", problem)


def _deletes(config: Any) -> bool:
    return getattr(config, "config_operation", None) == _DELETE


async def _of_resources(
    access: Access,
    request: Request,
    handler: Handler,
    operation: AclOperation,
    answered: str,
    problem: Callable[[Any], str | None],
) -> Response:
    """Require `operation`; a resource with a `problem` is refused for that, and is no denial in the log."""

    def is_allowed(resource: Any) -> bool:
        asked = _ASKED.get(resource.resource_type)
        if asked is None:
            return True
        resource_type = asked[0]
        name = CLUSTER_NAME if asked is _CLUSTER else resource.resource_name
        return access.allows(operation, resource_type, name, audit=problem(resource) is None)

    allowed, denied = await divided(request.body.resources, is_allowed)
    if not denied:
        return handler(request)
    request.body = replace(request.body, resources=tuple(allowed))

    def finish(response: Any) -> Any:
        row_type = item_type(type(response), answered)
        rows = []
        for resource in denied:
            error_code = _ASKED[resource.resource_type][1]
            message: str | None = message_of(error_code)
            if (found := problem(resource)) is not None:
                error_code, message = ErrorCode.invalid_request, found
            rows.append(
                filled(
                    row_type,
                    error_code=error_code,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return with_rows(response, answered, rows)

    return completed(handler(request), finish)
