"""Rebalances of a classic group: the members awaited between two generations, and for how long.

A rebalance begins when a member joins, leaves or fails; it ends when all members have rejoined, or after the
longest of their rebalance time-outs. The first one of a group waits for more members
(`group.initial.rebalance.delay.ms`, prolonged while members join). Then all receive the new generation, and
the leader has as long again to send the assignment.

Timers name the group by id and look it up when they run: it may be deleted, or have another type.

Source: Kafka's GroupMetadataManager (prepareRebalance, completeClassicGroupJoin and around them).
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.sync_group.v5.response import SyncGroupResponse

from sparklog.executor.coordinators.groups.machine.classic.group import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
)
from sparklog.executor.coordinators.groups.machine.classic.records import generation_record
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorResult,
    Now,
    Outcome,
    Reply,
    Token,
)
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""Time-out of a new member's JoinGroup, as in Kafka: its client may have gone."""


def join_error(error_code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return unthrottled(
        JoinGroupResponse,
        error_code=error_code,
        protocol_name="",
        leader="",
        member_id=member_id,
        members=(),
    )


def refuse_join(token: Token, error_code: ErrorCode, member_id: str = "") -> CoordinatorResult:
    return CoordinatorResult(replies=(Reply(token, join_error(error_code, member_id)),), at_once=True)


def join_response(
    group: ClassicGroup, member_id: str, *, leader_id: str | None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the response for the group's generation; only the leader's lists the members."""
    is_leader = leader_id == member_id
    protocol_name = group.protocol_name
    return unthrottled(
        JoinGroupResponse,
        error_code=ErrorCode.none,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol_name,
        leader=leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(protocol_name),
            )
            for member in group.members.values()
        )
        if is_leader and protocol_name is not None
        else (),
    )


def sync_response(
    error_code: ErrorCode, group: ClassicGroup | None = None, assignment: bytes = b""
) -> SyncGroupResponse:
    return unthrottled(
        SyncGroupResponse,
        error_code=error_code,
        protocol_type=None if group is None else group.protocol_type,
        protocol_name=None if group is None else group.protocol_name,
        assignment=assignment,
    )


class Rebalances:
    def __init__(
        self, groups: Mapping[str, Group], timers: Timers, *, initial_rebalance_delay_ms: int
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms

    # ---- members' sessions -----------------------------------------------------------------------------

    def prolong_session(
        self, group: ClassicGroup, member: ClassicMember, now: Now, timeout_ms: int | None = None
    ) -> None:
        """Restart the session timer, by default with the session time-out."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        self.expect_member(group.group_id, member.member_id, now, timeout_ms)

    def expect_member(self, group_id: str, member_id: str, now: Now, timeout_ms: int) -> None:
        """Start the session timer of a member, or of an id with which a member has yet to join."""
        self._timers.schedule(
            ("session", group_id, member_id),
            now.monotonic_ms + timeout_ms,
            partial(self._session_expired, group_id, member_id),
        )

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(("session", group.group_id, member_id))

    def answer_join(self, group: ClassicGroup, member: ClassicMember, response: object, out: Outcome) -> None:
        if member.awaiting_join is not None:
            out.reply(member.awaiting_join, response)
            group.await_join(member, None)

    def remove(self, group: ClassicGroup, member_id: str, out: Outcome) -> None:
        """Remove a member; its open requests fail with UNKNOWN_MEMBER_ID, so that it joins as a new one."""
        member = group.members.get(member_id)
        if member is not None:
            self.answer_join(group, member, join_error(ErrorCode.unknown_member_id), out)
            if member.awaiting_sync is not None:
                out.reply(member.awaiting_sync, sync_response(ErrorCode.unknown_member_id))
                member.awaiting_sync = None
        group.remove(member_id)
        self.forget_session(group, member_id)

    def _session_expired(self, group_id: str, member_id: str, now: Now) -> CoordinatorResult | None:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return None
        out = Outcome()
        if member_id in group.pending_join_members:
            logger.info("%s: %s did not rejoin with its new id in time", group, member_id)
            group.remove(member_id)
            self.complete_join_if_all_joined(group, now, out)
            return out.decision()
        member = group.members.get(member_id)
        if member is None or member.needs_no_heartbeat:
            return None
        logger.info("%s: session of member %s expired, member removed", group, member_id)
        self.remove(group, member_id, out)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self.complete_join_if_all_joined(group, now, out)
        elif group.state is not ClassicGroupState.EMPTY:
            self.prepare(group, now, out)
        return out.decision()

    # ---- a rebalance -----------------------------------------------------------------------------------

    def prepare_or_complete(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        """Begin a rebalance after a member joined or left, or end the one that waited for it."""
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self.complete_join_if_all_joined(group, now, out)
        else:
            self.prepare(group, now, out)

    def prepare(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self.fail_syncs(group, ErrorCode.rebalance_in_progress, now, out)
        self._stop_waiting_for_syncs(group)
        group.must_rebalance = False
        is_initial = group.state is ClassicGroupState.EMPTY
        logger.info("Rebalancing %s", group)
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE, now.wall_ms)
        if is_initial:
            delay_ms = self._initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now)
        elif group.all_members_joined:
            self._complete_join(group, now, out)
        else:
            self._wait_for_joins(group, now)

    def complete_join_if_all_joined(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        """End a rebalance that all members have joined; a group's first one waits for its delay."""
        is_first = group.previous_state is ClassicGroupState.EMPTY
        is_joining = group.state is ClassicGroupState.PREPARING_REBALANCE
        if is_joining and not is_first and group.all_members_joined:
            self._complete_join(group, now, out)

    def fail_syncs(self, group: ClassicGroup, error_code: ErrorCode, now: Now, out: Outcome) -> None:
        for member in group.members.values():
            member.assignment = b""
            self.answer_sync(group, member, sync_response(error_code), now, out)

    def answer_sync(
        self, group: ClassicGroup, member: ClassicMember, response: object, now: Now, out: Outcome
    ) -> None:
        """Answer the member's SyncGroup, if it is open, and restart its session."""
        if member.awaiting_sync is not None:
            out.reply(member.awaiting_sync, response)
            member.awaiting_sync = None
            self.prolong_session(group, member, now)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync_members.discard(member_id)
        if not group.pending_sync_members:
            self._timers.cancel(("sync", group.group_id))

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now: Now) -> None:
        self._timers.schedule(
            ("join", group.group_id),
            now.monotonic_ms + delay_ms,
            partial(self._initial_delay_over, group.group_id, delay_ms, remaining_ms),
        )

    def _initial_delay_over(
        self, group_id: str, delay_ms: int, remaining_ms: int, now: Now
    ) -> CoordinatorResult | None:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return None
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_delay_ms = min(self._initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_delay_ms, max(remaining_ms - delay_ms, 0), now)
            return None
        return self._joins_over(group_id, now)

    def _wait_for_joins(self, group: ClassicGroup, now: Now) -> None:
        self._timers.schedule(
            ("join", group.group_id),
            now.monotonic_ms + group.rebalance_timeout_ms,
            partial(self._joins_over, group.group_id),
        )

    def _joins_over(self, group_id: str, now: Now) -> CoordinatorResult | None:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return None
        out = Outcome()
        self._complete_join(group, now, out)
        return out.decision()

    def _complete_join(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        """Begin the generation with rejoined members; static ones stay until their sessions expire."""
        self._timers.cancel(("join", group.group_id))
        late = [
            member.member_id
            for member in group.members.values()
            if member.awaiting_join is None and member.group_instance_id is None
        ]
        if late:
            logger.info("%s: removed members that did not rejoin in time: %s", group, ", ".join(late))
        for member_id in late:
            self.remove(group, member_id, out)
        if not group.elect_joined_leader() and group.members:
            # Only static members, and none has rejoined: wait until one does, or their sessions expire.
            logger.info("%s: no member has rejoined yet", group)
            self._wait_for_joins(group, now)
            return
        group.begin_generation(now.wall_ms)
        if not group.members:
            logger.info("%s has no members left", group)
            out.records.append(generation_record(group, (), leader_id=group.leader_id))
            return
        logger.info("%s has %d members", group, len(group.members))
        for member in group.members.values():
            response = join_response(group, member.member_id, leader_id=group.leader_id)
            self.answer_join(group, member, response, out)
            self.prolong_session(group, member, now)
            member.is_new = False
            group.pending_sync_members.add(member.member_id)
        self._timers.schedule(
            ("sync", group.group_id),
            now.monotonic_ms + group.rebalance_timeout_ms,
            partial(self._syncs_over, group.group_id, group.generation),
        )

    def _stop_waiting_for_syncs(self, group: ClassicGroup) -> None:
        group.pending_sync_members.clear()
        self._timers.cancel(("sync", group.group_id))

    def _syncs_over(self, group_id: str, generation: int, now: Now) -> CoordinatorResult | None:
        """Remove members that received the generation and did not request their assignment."""
        group = self._groups.get(group_id)
        if (
            not isinstance(group, ClassicGroup)
            or group.generation != generation
            or group.state not in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE)
            or not group.pending_sync_members
        ):
            return None
        late = sorted(group.pending_sync_members)
        logger.info("%s: removed members that did not send SyncGroup in time: %s", group, ", ".join(late))
        out = Outcome()
        for member_id in late:
            self.remove(group, member_id, out)
        self.prepare(group, now, out)
        return out.decision()
