"""Guards of requests about configurations: each resource is asked for by its type."""

from dataclasses import replace
from typing import Any, Final

from sparklog.acls.access import Access
from sparklog.acls.acl import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.authorization.guards.guard import (
    Guard,
    completed,
    divided,
    filled,
    item_type,
    message_of,
    with_rows,
)
from sparklog.errors import ErrorCode
from sparklog.metadata.schemas import ResourceType
from sparklog.wire.requests import Handler, Request, Steps

__all__ = ["of_resources"]

_CLUSTER: Final = (AclResourceType.CLUSTER, ErrorCode.cluster_authorization_failed)
_ASKED: Final = {
    ResourceType.TOPIC: (AclResourceType.TOPIC, ErrorCode.topic_authorization_failed),
    ResourceType.GROUP: (AclResourceType.GROUP, ErrorCode.group_authorization_failed),
    ResourceType.BROKER: _CLUSTER,
    ResourceType.BROKER_LOGGER: _CLUSTER,
    ResourceType.CLIENT_METRICS: _CLUSTER,
}
"""What is asked about a resource, and the error if it is denied. Others are no resources, as is told then."""


def of_resources(operation: AclOperation, answered: str) -> Guard:
    """Return the guard that asks for `operation` on each resource."""

    def guard(access: Access, request: Request, handler: Handler) -> Steps:
        def is_allowed(resource: Any) -> bool:
            asked = _ASKED.get(resource.resource_type)
            if asked is None:
                return True
            resource_type = asked[0]
            name = CLUSTER_NAME if asked is _CLUSTER else resource.resource_name
            return access.allows(operation, resource_type, name)

        allowed, denied = yield from divided(request.body.resources, is_allowed)
        if not denied:
            return handler(request)
        request.body = replace(request.body, resources=tuple(allowed))

        def finish(response: Any) -> Any:
            row_type = item_type(type(response), answered)
            rows = []
            for resource in denied:
                error_code = _ASKED[resource.resource_type][1]
                rows.append(
                    filled(
                        row_type,
                        error_code=error_code,
                        error_message=message_of(error_code),
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                )
            return with_rows(response, answered, rows)

        return completed(handler(request), finish)

    return guard
