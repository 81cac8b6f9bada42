"""The classic groups of a partition: the `Membership` of the classic protocol.

A load keeps the last record of each group, and makes the groups of these at its end: a group may have
thousands of records in the log, and only the last one counts.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup, ClassicGroupState
from sparklog.executor.coordinators.groups.machine.classic.joining import Joins
from sparklog.executor.coordinators.groups.machine.classic.rebalance import (
    Rebalances,
    join_error,
    sync_response,
)
from sparklog.executor.coordinators.groups.machine.classic.records import loaded_group
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
from sparklog.executor.coordinators.groups.machine.outcome import Outcome
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Token
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
        self._max_size = max_size
        self._loading: dict[str, GroupMetadataValue] | None = {}
        """The last record of each group; None after the load."""
        self._rebalances = Rebalances(groups, timers, initial_rebalance_delay_ms=initial_rebalance_delay_ms)
        self._joins = Joins(groups, timers, self._rebalances, max_size=max_size)
        self._syncs = Syncs(groups, self._rebalances, metrics)
        self.replays: Mapping[type[Any], Replay] = {GroupMetadataKey: self._replay}

    def join_group(self, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._joins.join(request, token, now)

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
        oversized = []
        for group_id, value in loading.items():
            group = loaded_group(group_id, value)
            self._groups[group_id] = group
            self._begin_sessions(group, now)
            if len(group.members) > self._max_size:
                oversized.append(group)
        for group in oversized:
            logger.info("%s has more members than group.max.size and is rebalanced", group)
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

    def converted(self, group_id: str, rebalance: bool, now: Now) -> CoordinatorResult | None:
        """Start sessions of a group that a replayed record has converted from another type.

        With `rebalance` its members rejoin, as their assignment differs from the target.
        """
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.state is not ClassicGroupState.STABLE:
            return None
        self._begin_sessions(group, now)
        out = Outcome()
        if rebalance:
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
