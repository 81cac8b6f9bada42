"""Guards of requests about the cluster as a whole."""

from dataclasses import replace
from typing import Any, Final

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import CLUSTER_NAME, AclOperation, AclResourceType
from sparklog.node.authorization.guards.guard import Answer, ApiGuard, completed, denial
from sparklog.node.serving.requests import Handler, Refusal, Request
from sparklog.protocol.errors import ErrorCode

_CONTROLLERS: Final = 2


def of_cluster(operation: AclOperation) -> ApiGuard:
    def guard(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
        if not access.allows_on_cluster(operation):
            return refuse(request, denial(ErrorCode.cluster_authorization_failed))
        return handler(request)

    return guard


def describe_cluster(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
    """Require nothing; return the authorized operations if asked, and with DESCRIBE on the cluster."""
    if not request.body.include_cluster_authorized_operations:
        return handler(request)

    def finish(response: Any) -> Any:
        if response.error_code is not ErrorCode.none:
            return response
        return replace(response, cluster_authorized_operations=cluster_operations(access))

    return completed(handler(request), finish)


def cluster_operations(access: Access) -> int:
    """Return the authorized operations on the cluster, as far as they may be described."""
    if not access.allows_on_cluster(AclOperation.DESCRIBE):
        return 0
    return access.operations(AclResourceType.CLUSTER, CLUSTER_NAME)


def describe_cluster_by_controller(
    refuse: Refusal, access: Access, request: Request, handler: Handler
) -> Answer:
    """Require ALTER on the cluster for the endpoints of controllers; for brokers as brokers do."""
    is_of_controllers = getattr(request.body, "endpoint_type", None) == _CONTROLLERS
    if is_of_controllers and not access.allows_on_cluster(AclOperation.ALTER):
        return refuse(request, denial(ErrorCode.cluster_authorization_failed))
    return describe_cluster(refuse, access, request, handler)
