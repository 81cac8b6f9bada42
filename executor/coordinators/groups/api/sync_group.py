"""SyncGroup, versions 0 to 5."""

from typing import Final

from sparklog.executor.coordinators.groups.machine.classic.rebalance import sync_response
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.membership import SyncGroup
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode

FIRST_VERSION_WITH_PROTOCOLS: Final = 5
"""From this version on a member names the protocol it expects (KIP-559)."""


class SyncGroupHandler:
    """Answers SyncGroup when the leader has sent the assignment."""

    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    def handle(self, request: Request) -> Deferred | Response:
        body = upgrade(request.body)
        if not body.group_id:
            return sync_response(ErrorCode.invalid_group_id)
        if request.api_version >= FIRST_VERSION_WITH_PROTOCOLS and (
            body.protocol_type is None or body.protocol_name is None
        ):
            return sync_response(ErrorCode.inconsistent_group_protocol)
        sync = SyncGroup(
            group_id=body.group_id,
            member_id=body.member_id,
            group_instance_id=body.group_instance_id,
            generation=body.generation_id,
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            assignments=tuple((each.member_id, each.assignment) for each in body.assignments),
        )
        return self._coordinators.submit(
            sync.group_id, GroupMachine.sync_group, sync_response, sync, waits_for_others=True
        )
