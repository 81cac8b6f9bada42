"""Requests that only driver and brokers may make, whether there is an authorizer or not.

A client that registers as a broker, votes, changes an ISR, forwards requests in others' names or fetches as a
replica could take the cluster over. Such requests are answered for `CLUSTER_PRINCIPAL` alone; every other
principal gets CLUSTER_AUTHORIZATION_FAILED, as in Kafka one that lacks CLUSTER_ACTION. No ACL gives it to a
user. The CONTROLLER listeners of brokers admit no other principal at all.
"""

from collections.abc import Mapping
from typing import Any

from sparklog.node.apis.row import ApiRow, IsClusterAction, Side
from sparklog.node.apis.table import ROWS
from sparklog.node.authorization.guards.guard import denial
from sparklog.node.config import BrokerConfig
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.serving.requests import Api, Handler, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode


def cluster_actions(side: Side, config: BrokerConfig) -> Mapping[ApiKey, IsClusterAction]:
    """Return the test for reserved requests of each API that has any on a side's listeners."""
    selected: dict[ApiKey, IsClusterAction] = {}
    for row in ROWS.values():
        offer = row.offer(side)
        if offer is None:
            continue
        is_cluster_action = offer.cluster_action
        if is_cluster_action is None and config.authorizer is None:
            is_cluster_action = offer.cluster_action_unless_authorized
        if is_cluster_action is not None:
            selected[row.api_key] = is_cluster_action
    return selected


def guarded_cluster_actions(
    apis: Mapping[ApiKey, Api], reserved: Mapping[ApiKey, IsClusterAction]
) -> dict[ApiKey, Api]:
    """Return a listener's table in which reserved requests are refused to all but driver and brokers."""
    return {
        api_key: api._replace(handler=_guarded(ROWS[api_key], api.handler, reserved[api_key]))
        if api_key in reserved
        else api
        for api_key, api in apis.items()
    }


def _guarded(row: ApiRow, handler: Handler, is_cluster_action: IsClusterAction) -> Handler:
    def handle(request: Request) -> Any:
        if request.principal is not CLUSTER_PRINCIPAL and is_cluster_action(request):
            return _refused(row, request)
        return handler(request)

    return handle


def _refused(row: ApiRow, request: Request) -> Any:
    error, name = denial(ErrorCode.cluster_authorization_failed), request.api_key.name
    what = f"{name} is for the application's own driver and brokers, and {request.principal} is neither"
    request.connection.note(f"{name} {error.error_code.name}", what)
    return row.refuse(request, error)
