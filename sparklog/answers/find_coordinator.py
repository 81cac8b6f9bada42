"""FindCoordinator: this release has no group and no transaction coordinator, and says so.

A group gets COORDINATOR_NOT_AVAILABLE, as from a Kafka cluster whose coordinator is not up: consumers
that were assigned their partitions go on without committing. A transactional id gets
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the retriable code would have `init_transactions` try in silence
until its time is up, this one fails it at once. The message of version 4 and later says why.
"""

from enum import IntEnum
from typing import Any, Final

from kio.schema.find_coordinator.v3 import FindCoordinatorResponse as SingleFindCoordinatorResponse
from kio.schema.find_coordinator.v6 import FindCoordinatorResponse
from kio.schema.find_coordinator.v6.response import Coordinator

from sparklog.errors import ErrorCode
from sparklog.wire.requests import Request, Response, Steps
from sparklog.wire.throttling import unthrottled

__all__ = ["handle_find_coordinator"]

FIRST_BATCHED_VERSION: Final = 4
FIRST_SHARE_VERSION: Final = 6
NO_BROKER: Final = -1


class CoordinatorType(IntEnum):
    """What the key of a FindCoordinator request names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def handle_find_coordinator(request: Request) -> Response | Steps:
    """Answer that there is no coordinator, for each key asked for."""
    body: Any = request.body
    if request.api_version >= FIRST_BATCHED_VERSION:
        return _refused_keys(body, *_refusal(body.key_type, request.api_version))
    # Version 0 knows groups only.
    key_type = body.key_type if request.api_version > 0 else CoordinatorType.GROUP
    error_code, message = _refusal(key_type, request.api_version)
    return unthrottled(
        SingleFindCoordinatorResponse,
        error_code=error_code,
        error_message=message,
        node_id=NO_BROKER,
        host="",
        port=-1,
    )


def _refused_keys(body: Any, error_code: ErrorCode, message: str) -> Steps:
    coordinators = []
    for key in body.coordinator_keys:
        yield
        coordinators.append(
            Coordinator(
                key=key, node_id=NO_BROKER, host="", port=-1, error_code=error_code, error_message=message
            )
        )
    return unthrottled(FindCoordinatorResponse, coordinators=tuple(coordinators))


def _refusal(key_type: int, api_version: int) -> tuple[ErrorCode, str]:
    if key_type == CoordinatorType.GROUP:
        return (
            ErrorCode.coordinator_not_available,
            "this cluster has no group coordinator: assign partitions instead of subscribing",
        )
    if key_type == CoordinatorType.TRANSACTION:
        return (
            ErrorCode.transactional_id_authorization_failed,
            "this cluster has no transaction coordinator: produce without transactional.id",
        )
    if key_type == CoordinatorType.SHARE and api_version >= FIRST_SHARE_VERSION:
        return ErrorCode.coordinator_not_available, "this cluster has no share coordinator"
    return ErrorCode.invalid_request, f"coordinator type {key_type} does not exist in version {api_version}"
