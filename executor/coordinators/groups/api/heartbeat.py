"""Heartbeat, versions 0 to 4."""

from kio.schema.heartbeat.v4.response import HeartbeatResponse

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.membership import Heartbeat
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode


class HeartbeatHandler:
    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    def handle(self, request: Request) -> Deferred | Response:
        body = request.body
        if not body.group_id:
            return _refuse(ErrorCode.invalid_group_id)
        heartbeat = Heartbeat(
            body.group_id, body.member_id, getattr(body, "group_instance_id", None), body.generation_id
        )
        return self._coordinators.submit(heartbeat.group_id, GroupMachine.heartbeat, _refuse, heartbeat)


def _refuse(error_code: ErrorCode) -> Response:
    if error_code is ErrorCode.coordinator_load_in_progress:
        # Sessions restart after the load, so the member needs no error now.
        error_code = ErrorCode.none
    return unthrottled(HeartbeatResponse, error_code=error_code)
