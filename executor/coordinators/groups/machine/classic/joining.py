"""JoinGroup in a classic group: admission of members, and the rebalance that may follow.

A dynamic member first receives its id and then joins with it, so that a client that gives up and retries
leaves no unknown members behind (KIP-394). A static member that returns under its instance id replaces the
former holder, which is fenced from then on; if the group is stable and the selected protocol unchanged, the
other members are not rebalanced (KIP-345, KIP-814).

Source: Kafka's GroupMetadataManager, classicGroupJoin and its callees; KIP-429 needs nothing here.
"""

import logging
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup, ClassicGroupState
from sparklog.executor.coordinators.groups.machine.classic.member import ClassicMember
from sparklog.executor.coordinators.groups.machine.classic.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalances,
    join_error,
    join_response,
    refuse_join,
    sync_response,
)
from sparklog.executor.coordinators.groups.machine.classic.records import (
    created_group,
    generation_record,
    member_metadata,
)
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.groups.machine.membership import JoinGroup
from sparklog.executor.coordinators.groups.machine.outcome import Outcome
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class Joins:
    def __init__(
        self, groups: MutableMapping[str, Group], timers: Timers, rebalances: Rebalances, *, max_size: int
    ) -> None:
        """`max_size` is group.max.size."""
        self._groups = groups
        self._timers = timers
        self._rebalances = rebalances
        self._max_size = max_size

    def join(self, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
        """Let a member join; the group is a classic one, an empty one of another type, or does not exist."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            self._groups[request.group_id] = group  # a simple group is stored from now on
            return self._join(group, request, token, now)
        if request.member_id:  # of a deleted group
            return refuse_join(token, ErrorCode.unknown_member_id, request.member_id)
        tombstones = () if group is None else group.tombstones()
        self._timers.soon(partial(self._join_created, request, token))
        return CoordinatorResult((*tombstones, created_group(request.group_id, now.wall_ms)))

    def _join_created(self, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._join(group, request, token, now)
        return refuse_join(token, ErrorCode.coordinator_not_available)  # the group's record was not appended

    def _join(self, group: ClassicGroup, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
        if not self._has_room(group, request.member_id):
            out = Outcome()
            self._rebalances.remove(group, request.member_id, out)
            out.reply(token, join_error(ErrorCode.group_max_size_reached))
            return out.decision()
        if not group.supports_protocols(request.protocol_type, (name for name, _ in request.protocols)):
            return refuse_join(token, ErrorCode.inconsistent_group_protocol, request.member_id)
        if request.member_id:
            return self._join_known(group, request, token, now)
        if request.group_instance_id is not None:
            return self._join_static(group, request, token, now)
        if request.needs_known_member_id:
            logger.info("%s: new member must rejoin with the id %s", group, request.new_member_id)
            group.pending_join_members.add(request.new_member_id)
            self._rebalances.expect_member(
                group.group_id, request.new_member_id, now, request.session_timeout_ms
            )
            return refuse_join(token, ErrorCode.member_id_required, request.new_member_id)
        return self._add(group, request, request.new_member_id, token, now)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Check group.max.size; in a rebalance only rejoined members count."""
        member = group.members.get(member_id)
        if group.state is ClassicGroupState.EMPTY:
            return True
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or group.awaiting_join_count < self._max_size
        return member is not None or len(group.members) < self._max_size

    def _add(
        self, group: ClassicGroup, request: JoinGroup, member_id: str, token: Token, now: Now
    ) -> CoordinatorResult:
        logger.info("%s: %s joins", group, member_id)
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
        )
        member.is_new = True
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is ClassicGroupState.EMPTY
        ):
            group.new_member_added = True
        group.add(member, request.protocol_type, token)
        self._rebalances.prolong_session(group, member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        out = Outcome()
        self._rebalances.prepare_or_complete(group, now, out)
        return out.decision()

    def _join_known(
        self, group: ClassicGroup, request: JoinGroup, token: Token, now: Now
    ) -> CoordinatorResult:
        member_id = request.member_id
        if member_id in group.pending_join_members and request.group_instance_id is None:
            return self._add(group, request, member_id, token, now)
        error_code = group.validate_member(member_id, request.group_instance_id)
        if error_code is not ErrorCode.none:
            return refuse_join(token, error_code, member_id)
        member = group.members[member_id]
        is_as_before = member.protocols == request.protocols
        if (group.state is ClassicGroupState.COMPLETING_REBALANCE and is_as_before) or (
            # A leader that joins a stable group requests a rebalance, for reasons of its client.
            group.state is ClassicGroupState.STABLE and is_as_before and group.leader_id != member_id
        ):
            return CoordinatorResult(
                replies=(Reply(token, join_response(group, member_id, leader_id=group.leader_id)),)
            )
        if group.state is ClassicGroupState.EMPTY:
            return refuse_join(token, ErrorCode.unknown_member_id, member_id)
        out = Outcome()
        self._wait(group, member, request, token, out)
        self._rebalances.prepare_or_complete(group, now, out)
        return out.decision()

    def _wait(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroup, token: Token, out: Outcome
    ) -> None:
        """Let the member wait for the others; an earlier open JoinGroup fails: REBALANCE_IN_PROGRESS."""
        self._rebalances.answer_join(
            group, member, join_error(ErrorCode.rebalance_in_progress, member.member_id), out
        )
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.await_join(member, token)

    # ---- static members --------------------------------------------------------------------------------

    def _join_static(
        self, group: ClassicGroup, request: JoinGroup, token: Token, now: Now
    ) -> CoordinatorResult:
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_member_id = group.static_member_ids.get(instance_id)
        if old_member_id is None:
            return self._add(group, request, request.new_member_id, token, now)
        logger.info(
            "%s: static member %s returns as %s and replaces %s",
            group,
            instance_id,
            request.new_member_id,
            old_member_id,
        )
        member = group.members[old_member_id]
        if group.state is ClassicGroupState.STABLE and self._keeps_protocol(group, member, request):
            return self._replace_unnoticed(group, member, request, token)
        out = Outcome()
        self._rebalances.answer_join(
            group, member, join_error(ErrorCode.fenced_instance_id, old_member_id), out
        )
        if member.awaiting_sync is not None:
            out.reply(member.awaiting_sync, sync_response(ErrorCode.fenced_instance_id))
            member.awaiting_sync = None
        self._rebalances.forget_session(group, old_member_id)
        group.replace_static_member(instance_id, request.new_member_id)
        self._rebalances.prolong_session(group, member, now)
        self._wait(group, member, request, token, out)
        self._rebalances.prepare_or_complete(group, now, out)
        return out.decision()

    def _keeps_protocol(self, group: ClassicGroup, member: ClassicMember, request: JoinGroup) -> bool:
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        selected = group.select_protocol()
        group.update(member, *before)
        return selected == group.protocol_name

    def _replace_unnoticed(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroup, token: Token
    ) -> CoordinatorResult:
        """Write the generation with the member's new id; the replay replaces the member."""
        assert group.protocol_name is not None, "a stable group has a protocol"
        protocol_name = group.protocol_name
        leader_id = request.new_member_id if group.leader_id == member.member_id else group.leader_id
        replaced = replace(
            member_metadata(member, protocol_name, member.assignment),
            member_id=request.new_member_id,
            rebalance_timeout=request.rebalance_timeout_ms,
            session_timeout=request.session_timeout_ms,
            subscription=dict(request.protocols)[protocol_name],
        )
        record = generation_record(
            group,
            tuple(
                replaced if other is member else member_metadata(other, protocol_name, other.assignment)
                for other in group.members.values()
            ),
            leader_id=leader_id,
        )
        self._timers.soon(partial(self._replaced, request, member.member_id, group.leader_id, token))
        return CoordinatorResult((record,))

    def _replaced(
        self, request: JoinGroup, old_member_id: str, old_leader_id: str | None, token: Token, now: Now
    ) -> CoordinatorResult:
        group = self._groups.get(request.group_id)
        member_id = request.new_member_id
        if not isinstance(group, ClassicGroup) or member_id not in group.members:
            return refuse_join(token, ErrorCode.coordinator_not_available)  # the record was not appended
        member = group.members[member_id]
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self._rebalances.forget_session(group, old_member_id)
        self._rebalances.prolong_session(group, member, now)
        if request.can_skip_assignment:
            response = join_response(
                group,
                member_id,
                leader_id=group.leader_id,
                skip_assignment=group.leader_id == member_id,
            )
        else:
            # An old client that learns that it leads would compute an assignment that is never distributed,
            # so it gets the id of the former leader, which no member has any more.
            response = join_response(group, member_id, leader_id=old_leader_id)
        return CoordinatorResult(replies=(Reply(token, response),))
