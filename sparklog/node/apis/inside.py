"""Requests that only driver and brokers may make, whether there is an authorizer or not.

A client that registers as a broker, votes, changes an ISR, forwards requests in others' names or fetches as a
replica could take the cluster over. Such requests are answered for `INSIDE` alone; every other principal gets
CLUSTER_AUTHORIZATION_FAILED, as in Kafka one that lacks CLUSTER_ACTION. No ACL gives it to a user. The
CONTROLLER listeners of brokers admit no other principal at all.
"""

from collections.abc import Mapping
from typing import Any

from sparklog.node.apis.row import ApiRow, IsInside, Side
from sparklog.node.apis.table import ROWS
from sparklog.node.authorization.guards.guard import denial
from sparklog.node.config import BrokerConfig
from sparklog.node.security.inside import INSIDE
from sparklog.node.serving.requests import Api, Handler, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode


def only_inside(side: Side, config: BrokerConfig) -> Mapping[ApiKey, IsInside]:
    """Return the test for reserved requests of each API that has any on a side's listeners."""
    selected: dict[ApiKey, IsInside] = {}
    for row in ROWS.values():
        offer = row.offer(side)
        if offer is None:
            continue
        is_inside = offer.only_inside
        if is_inside is None and config.authorizer is None:
            is_inside = offer.only_inside_unless_authorized
        if is_inside is not None:
            selected[row.api_key] = is_inside
    return selected


def guarded_inside(apis: Mapping[ApiKey, Api], reserved: Mapping[ApiKey, IsInside]) -> dict[ApiKey, Api]:
    """Return a listener's table in which reserved requests are refused to all but driver and brokers."""
    return {
        api_key: api._replace(handler=_guarded(ROWS[api_key], api.handler, reserved[api_key]))
        if api_key in reserved
        else api
        for api_key, api in apis.items()
    }


def _guarded(row: ApiRow, handler: Handler, is_inside: IsInside) -> Handler:
    def handle(request: Request) -> Any:
        if request.principal is not INSIDE and is_inside(request):
            return _refused(row, request)
        return handler(request)

    return handle


def _refused(row: ApiRow, request: Request) -> Any:
    error, name = denial(ErrorCode.cluster_authorization_failed), request.api_key.name
    what = f"{name} is for the application's own driver and brokers, and {request.principal} is neither"
    request.connection.note(f"{name} {error.error_code.name}", what)
    return row.refuse(request, error)
