"""JoinGroup, versions 0 to 9."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from sparklog.executor.coordinators.groups.machine.classic.rebalance import join_error
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.membership import JoinGroup
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.acls.host import host_of
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode

FIRST_VERSION_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_VERSION_THAT_NEEDS_A_MEMBER_ID: Final = 4
FIRST_VERSION_THAT_CAN_SKIP_ASSIGNMENT: Final = 9
_MILLISECOND: Final = timedelta(milliseconds=1)


def client_host(request: Request) -> str:
    """Return the client's address as Java shows an address without a name."""
    return "/" + host_of(request.connection.peer)


def may_describe(request: Request) -> Callable[[str], bool] | None:
    """Return a predicate for the topics that the client may describe; None for all topics."""
    access = request.access
    return None if access is None else access.allowing(AclOperation.DESCRIBE, AclResourceType.TOPIC)


def _without_repetitions(protocols: Iterable[Any]) -> tuple[tuple[str, bytes], ...]:
    """Return the protocols; the first of a name counts, as in Kafka."""
    by_name: dict[str, bytes] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol.metadata)
    return tuple(by_name.items())


class JoinGroupHandler:
    """Answers JoinGroup when the member's group has a new generation."""

    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    def handle(self, request: Request) -> Deferred | Response:
        body = upgrade(request.body)
        if not body.group_id:
            return join_error(ErrorCode.invalid_group_id, body.member_id)
        version = request.api_version
        session_timeout_ms = body.session_timeout // _MILLISECOND
        client_id = request.client_id or ""
        name = client_id if body.group_instance_id is None else body.group_instance_id
        join = JoinGroup(
            group_id=body.group_id,
            member_id=body.member_id,
            group_instance_id=body.group_instance_id,
            client_id=client_id,
            client_host=client_host(request),
            protocol_type=body.protocol_type,
            protocols=_without_repetitions(body.protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=(
                body.rebalance_timeout // _MILLISECOND
                if version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
                else session_timeout_ms
            ),
            new_member_id=f"{name}-{uuid4()}",
            needs_known_member_id=version >= FIRST_VERSION_THAT_NEEDS_A_MEMBER_ID,
            can_skip_assignment=version >= FIRST_VERSION_THAT_CAN_SKIP_ASSIGNMENT,
            may_describe=may_describe(request),
        )
        return self._coordinators.submit(
            join.group_id,
            GroupMachine.join_group,
            lambda error_code: join_error(error_code, join.member_id),
            join,
            waits_for_others=True,
        )
