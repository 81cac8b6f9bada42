"""DescribeGroups, versions 0 to 6: classic groups; those of other types have APIs of their own."""

from typing import Final

from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

from sparklog.executor.coordinators.groups.api.large_requests import answers_of
from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup, ClassicGroupState
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.responses.authorized_operations import GROUP_OPERATIONS, OPERATIONS_OMITTED
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.versions import upgrade_in_steps
from sparklog.protocol.errors import ErrorCode

FIRST_VERSION_OF_MISSING_GROUPS: Final = 6
"""From this version on a group that does not exist is an error (KIP-1043), and not a dead group."""


class DescribeGroupsHandler:
    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    async def handle(self, request: Request) -> Response:
        body = await upgrade_in_steps(request.body)
        operations = GROUP_OPERATIONS if body.include_authorized_operations else OPERATIONS_OMITTED

        def describe(group_id: str) -> Deferred:
            def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
                group = machine.groups.get(group_id)
                if isinstance(group, ClassicGroup):
                    return CoordinatorResult(replies=(Reply(token, _described(group, operations)),))
                is_missing = "not found" if group is None else "is not a classic group"
                return CoordinatorResult(
                    replies=(Reply(token, _missing(group_id, is_missing, request.api_version)),)
                )

            return self._coordinators.submit(
                group_id, decide, lambda error_code: _refused(group_id, error_code)
            )

        groups = await answers_of(body.groups, describe)
        return unthrottled(DescribeGroupsResponse, groups=tuple(groups))


def _described(group: ClassicGroup, operations: int) -> DescribedGroup:
    protocol_name = group.protocol_name if group.state is ClassicGroupState.STABLE else None
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name or "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
        authorized_operations=operations,
    )


def _missing(group_id: str, why: str, api_version: int) -> DescribedGroup:
    if api_version >= FIRST_VERSION_OF_MISSING_GROUPS:
        text = f"Group {group_id} {why}."
        return _refused(group_id, ErrorCode.group_id_not_found, text, str(ClassicGroupState.DEAD))
    return _refused(group_id, ErrorCode.none, None, str(ClassicGroupState.DEAD))


def _refused(
    group_id: str, error_code: ErrorCode, text: str | None = None, group_state: str = ""
) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        error_message=text,
        group_id=group_id,
        group_state=group_state,
        protocol_type="",
        protocol_data="",
        members=(),
    )
