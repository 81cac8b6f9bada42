"""SyncGroup, Heartbeat and LeaveGroup in a classic group.

The leader's SyncGroup brings the assignment, which is one record. After its replay the group is stable, and
all waiting members receive their part. Source: Kafka's GroupMetadataManager (classicGroupSync and the like).
"""

import logging
from collections.abc import Mapping
from typing import Final

from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup, ClassicGroupState
from sparklog.executor.coordinators.groups.machine.classic.rebalance import Rebalances, sync_response
from sparklog.executor.coordinators.groups.machine.classic.records import assigned_generation
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.groups.machine.membership import (
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorResult,
    Now,
    Outcome,
    Reply,
    Token,
)
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

_HEARTBEATS: Final = {
    error_code: unthrottled(HeartbeatResponse, error_code=error_code)
    for error_code in (
        ErrorCode.none,
        ErrorCode.rebalance_in_progress,
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
    )
}


def leave_response(members: tuple[LeavingMember, ...], error_code: ErrorCode) -> LeaveGroupResponse:
    return unthrottled(
        LeaveGroupResponse,
        error_code=ErrorCode.none,
        members=tuple(
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=error_code,
            )
            for member in members
        ),
    )


class Syncs:
    def __init__(self, groups: Mapping[str, Group], rebalances: Rebalances, metrics: GroupMetrics) -> None:
        self._metrics = metrics
        self._groups = groups
        self._rebalances = rebalances

    def sync(self, request: SyncGroup, token: Token, now: Now) -> CoordinatorResult:
        """Answer with a member's assignment, at once or when the leader has sent it."""
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup) or group.is_empty:
            return _refuse_sync(token, ErrorCode.unknown_member_id)
        error_code = group.validate_member(request.member_id, request.group_instance_id)
        if error_code is not ErrorCode.none:
            return _refuse_sync(token, error_code)
        if request.generation != group.generation:
            return _refuse_sync(token, ErrorCode.illegal_generation)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            return _refuse_sync(token, ErrorCode.inconsistent_group_protocol)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return _refuse_sync(token, ErrorCode.rebalance_in_progress)
        self._rebalances.synced(group, request.member_id)
        member = group.members[request.member_id]
        if group.state is ClassicGroupState.STABLE:
            # Kafka's group becomes stable, and its sessions begin, when the assignment is committed. Here the
            # response may wait for that, and the waiting member sends no heartbeats.
            self._rebalances.prolong_session(group, member, now)
            response = sync_response(ErrorCode.none, group, member.assignment)
            return CoordinatorResult(replies=(Reply(token, response),))
        out = Outcome()
        if member.awaiting_sync is not None:  # the client that sent the earlier one has given up
            out.reply(member.awaiting_sync, sync_response(ErrorCode.rebalance_in_progress))
        member.awaiting_sync = token
        if group.leader_id == request.member_id:
            self._assign(group, dict(request.assignments), now, out)
        return out.decision()

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes], now: Now, out: Outcome) -> None:
        forgotten = [member_id for member_id in group.members if member_id not in assignments]
        if forgotten:
            logger.warning("%s: leader's assignment lacks the members %s", group, ", ".join(forgotten))
        out.records.append(assigned_generation(group, assignments))
        self._metrics.completed_rebalances += 1
        for member in group.members.values():
            response = sync_response(ErrorCode.none, group, assignments.get(member.member_id, b""))
            self._rebalances.answer_sync(group, member, response, now, out)

    def assignment_failed(self, group: ClassicGroup, now: Now) -> CoordinatorResult:
        out = Outcome()
        self._rebalances.prepare(group, now, out)
        return out.decision()

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> CoordinatorResult:
        """Prolong a session; the error code informs the member of a rebalance."""
        return CoordinatorResult(
            replies=(Reply(token, _HEARTBEATS[self._heartbeat(request, now)]),), at_once=True
        )

    def _heartbeat(self, request: Heartbeat, now: Now) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return ErrorCode.unknown_member_id
        error_code = group.validate_member(request.member_id, request.group_instance_id)
        if error_code is not ErrorCode.none:
            return error_code
        if request.generation != group.generation:
            return ErrorCode.illegal_generation
        self._rebalances.prolong_session(group, group.members[request.member_id], now)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def leave(self, request: LeaveGroup, token: Token, now: Now) -> CoordinatorResult:
        """Remove members; the others rebalance."""
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return CoordinatorResult(
                replies=(Reply(token, leave_response(request.members, ErrorCode.unknown_member_id)),),
                at_once=True,
            )
        out = Outcome()
        responses = []
        for leaving in request.members:
            error_code = self._leave(group, leaving, out)
            responses.append(
                MemberResponse(
                    member_id=leaving.member_id,
                    group_instance_id=leaving.group_instance_id,
                    error_code=error_code,
                )
            )
        if not group.is_empty and any(response.error_code is ErrorCode.none for response in responses):
            self._rebalances.prepare_or_complete(group, now, out)
        out.reply(
            token,
            unthrottled(LeaveGroupResponse, error_code=ErrorCode.none, members=tuple(responses)),
        )
        return out.decision()

    def _leave(self, group: ClassicGroup, leaving: LeavingMember, out: Outcome) -> ErrorCode:
        member_id: str | None = leaving.member_id
        if not member_id:  # an admin removes a static member without its member id
            instance_id = leaving.group_instance_id
            member_id = None if instance_id is None else group.static_member_ids.get(instance_id)
            if member_id is None:
                return ErrorCode.unknown_member_id
        elif member_id not in group.pending_join_members:
            error_code = group.validate_member(member_id, leaving.group_instance_id)
            if error_code is not ErrorCode.none:
                return error_code
        logger.info("%s: %s leaves", group, member_id)
        self._rebalances.remove(group, member_id, out)
        return ErrorCode.none


def _differs(said: str | None, known: str | None) -> bool:
    """Whether two protocols differ; old clients give none."""
    return said is not None and known is not None and said != known


def _refuse_sync(token: Token, error_code: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(replies=(Reply(token, sync_response(error_code)),), at_once=True)
