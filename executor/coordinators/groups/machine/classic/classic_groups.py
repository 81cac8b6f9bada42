"""The classic groups of a partition: the `Membership` of the classic protocol.

A load keeps the last record of each group, and makes the groups of these at its end: a group may have
thousands of records in the log, and only the last one counts.

A dynamic member first receives its id and then joins with it, so that a client that gives up and retries
leaves no unknown members behind (KIP-394). A static member that returns under its instance id replaces the
former holder, which is fenced from then on; if the group is stable and the selected protocol unchanged, the
other members are not rebalanced (KIP-345, KIP-814).

Source: Kafka's GroupMetadataManager, classicGroupJoin and its callees; KIP-429 needs nothing here.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sparklog.executor.coordinators.groups.machine.classic.group import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
)
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
    loaded_group,
    member_metadata,
)
from sparklog.executor.coordinators.groups.machine.classic.syncing import Syncs
from sparklog.executor.coordinators.groups.machine.group import Group, GroupType
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.groups.machine.membership import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Replay,
    SyncGroup,
)
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorResult,
    Now,
    Outcome,
    Reply,
    Token,
)
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.executor.coordinators.records.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class ClassicGroups:
    group_type: Final = GroupType.CLASSIC

    def __init__(
        self,
        groups: MutableMapping[str, Group],
        timers: Timers,
        metrics: GroupMetrics,
        *,
        kept: Callable[[str], Group | None],
        initial_rebalance_delay_ms: int,
        max_size: int,
    ) -> None:
        """`groups` are all of the partition, `kept` finds those not simple; limits are Kafka's keys."""
        self._groups = groups
        self._kept = kept
        self._timers = timers
        self._max_size = max_size
        self._loading: dict[str, GroupMetadataValue] | None = {}
        """The last record of each group; None after the load."""
        self._rebalances = Rebalances(groups, timers, initial_rebalance_delay_ms=initial_rebalance_delay_ms)
        self._syncs = Syncs(groups, self._rebalances, metrics)
        self.replays: Mapping[type[Any], Replay] = {GroupMetadataKey: self._replay}

    def sync_group(self, request: SyncGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._syncs.sync(request, token, now)

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> CoordinatorResult:
        return self._syncs.heartbeat(request, token, now)

    def leave_group(self, request: LeaveGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._syncs.leave(request, token, now)

    def _replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if self._loading is not None:
            if value is None:
                self._loading.pop(key.group, None)
            else:
                self._loading[key.group] = value
            return
        # A simple group would be dropped again, with the contents of the record.
        group = self._kept(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self._groups[key.group]
        elif isinstance(group, ClassicGroup):
            _take_over(group, value)
        else:
            self._groups[key.group] = loaded_group(key.group, value)

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        """Make the groups of their last records, and start each member's session in full."""
        loading, self._loading = self._loading or {}, None
        rebalanced = []
        for group_id, value in loading.items():
            group = loaded_group(group_id, value)
            self._groups[group_id] = group
            self._begin_sessions(group, now)
            if len(group.members) > self._max_size:
                logger.info("%s has more members than group.max.size and is rebalanced", group)
                rebalanced.append(group)
            elif group.must_rebalance:
                rebalanced.append(group)
        for group in rebalanced:
            out = Outcome()
            self._rebalances.prepare(group, now, out)
            yield out.decision()

    def release(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        """Make all waiting members rejoin: the group is converted to another type, if that can be written."""
        for member in group.members.values():
            self._rebalances.prolong_session(
                group, member, now
            )  # it may have expired while the member waited
            self._rebalances.answer_join(group, member, join_error(ErrorCode.rebalance_in_progress), out)
            response = sync_response(ErrorCode.rebalance_in_progress)
            self._rebalances.answer_sync(group, member, response, now, out)

    def converted(self, group_id: str, now: Now) -> CoordinatorResult | None:
        """Start sessions of a group that a replayed record has converted from another type.

        Its members rejoin if their assignment differs from the target, as the record says.
        """
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.state is not ClassicGroupState.STABLE:
            return None
        self._begin_sessions(group, now)
        out = Outcome()
        if group.must_rebalance:
            self._rebalances.prepare(group, now, out)
        return out.decision()

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        """Do nothing: clients of the classic protocol watch topics themselves."""
        return ()

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        """Rebalance a group whose assignment was not written; the waiting members are already answered."""
        for key, value in decision.records:
            group = self._groups.get(getattr(key, "group", ""))
            if (
                isinstance(key, GroupMetadataKey)
                and isinstance(value, GroupMetadataValue)
                and isinstance(group, ClassicGroup)
                and group.state is ClassicGroupState.COMPLETING_REBALANCE
                and value.generation == group.generation
            ):
                return self._syncs.assignment_failed(group, now)
        return None

    def offsets_committed(self, group: Group, member_id: str, now: Now) -> None:
        """Prolong the member's session, except while the group awaits the leader's assignment."""
        if isinstance(group, ClassicGroup) and group.state in (
            ClassicGroupState.STABLE,
            ClassicGroupState.PREPARING_REBALANCE,
        ):
            member = group.members.get(member_id)
            if member is not None:
                self._rebalances.prolong_session(group, member, now)

    def _begin_sessions(self, group: ClassicGroup, now: Now) -> None:
        for member in group.members.values():
            self._rebalances.prolong_session(group, member, now)

    # ---- members that join -----------------------------------------------------------------------------

    def join_group(self, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
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
        if (
            group.state is ClassicGroupState.STABLE
            and not group.must_rebalance
            and self._keeps_protocol(group, member, request)
        ):
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


def _take_over(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Apply the record of a loaded group: an assignment, or the new id of a static member.

    The creation of a group and the departure of its last member are applied when decided.
    """
    if group.state is ClassicGroupState.COMPLETING_REBALANCE and value.members:
        for stored in value.members:
            group.members[stored.member_id].assignment = stored.assignment
        group.transition_to(ClassicGroupState.STABLE, value.current_state_timestamp)
    elif group.state is ClassicGroupState.STABLE:
        for stored in value.members:
            if stored.group_instance_id is not None and stored.member_id not in group.members:
                group.replace_static_member(stored.group_instance_id, stored.member_id)
