"""LeaveGroup, versions 0 to 5."""

from kio.schema.leave_group.v5.response import LeaveGroupResponse

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.membership import LeaveGroup, LeavingMember
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode


class LeaveGroupHandler:
    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    def handle(self, request: Request) -> Deferred | Response:
        body = upgrade(request.body)
        if not body.group_id:
            return _refuse(ErrorCode.invalid_group_id)
        leave = LeaveGroup(
            body.group_id,
            tuple(LeavingMember(member.member_id, member.group_instance_id) for member in body.members),
        )
        return self._coordinators.submit(leave.group_id, GroupMachine.leave_group, _refuse, leave)


def _refuse(error_code: ErrorCode) -> Response:
    return unthrottled(LeaveGroupResponse, error_code=error_code, members=())
