"""Time-outs of a consumer group's members.

    session     any sign of life; a silent member is removed
    rebalance   a member that has to revoke partitions does so, or is removed: others wait for them
    join        a classic member has to rejoin after a heartbeat with REBALANCE_IN_PROGRESS,
    sync        and to send SyncGroup after it has joined

An expired timer looks up group and member again: they may be gone or have changed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember, MemberState
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now
from sparklog.executor.coordinators.machine.timers import Timers

Expired: TypeAlias = Callable[[ConsumerGroup, ConsumerMember, str, Now], CoordinatorResult]
"""(group, member, why, now): remove a member after a time-out."""


class MemberTimeouts:
    def __init__(self, groups: Mapping[str, Group], timers: Timers, expired: Expired) -> None:
        self._groups = groups
        self._timers = timers
        self._expired = expired

    def prolong(self, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
        self._schedule("session", group_id, member_id, timeout_ms, "its session expired", now)

    def expect_join(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """Start the time-out of a requested rejoin, unless it is running."""
        if ("join", group_id, member.member_id) not in self._timers:
            timeout_ms = member.rebalance_timeout_ms
            self._schedule("join", group_id, member.member_id, timeout_ms, "it did not rejoin in time", now)

    def expect_sync(self, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
        self._timers.cancel(("join", group_id, member_id))
        self._schedule("sync", group_id, member_id, timeout_ms, "it did not send SyncGroup in time", now)

    def synced(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(("sync", group_id, member_id))

    def expect_revocation(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """Start the time-out of a member's revocation; end it if there is none pending."""
        key = "rebalance", group_id, member.member_id
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.schedule(
                key,
                now.monotonic_ms + member.rebalance_timeout_ms,
                partial(self._not_revoked, group_id, member.member_id, member.member_epoch),
            )
        else:
            self._timers.cancel(key)

    def end(self, group_id: str, member_ids: Sequence[str]) -> None:
        for member_id in member_ids:
            for kind in ("session", "rebalance", "join", "sync"):
                self._timers.cancel((kind, group_id, member_id))

    def _schedule(
        self, kind: str, group_id: str, member_id: str, timeout_ms: int, why: str, now: Now
    ) -> None:
        self._timers.schedule(
            (kind, group_id, member_id),
            now.monotonic_ms + timeout_ms,
            partial(self._over, group_id, member_id, why),
        )

    def _over(self, group_id: str, member_id: str, why: str, now: Now) -> CoordinatorResult | None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return None
        return self._expired(group, group.members[member_id], why, now)

    def _not_revoked(
        self, group_id: str, member_id: str, member_epoch: int, now: Now
    ) -> CoordinatorResult | None:
        group = self._groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None or member.member_epoch != member_epoch:
            return None
        return self._expired(group, member, "it did not revoke its partitions in time", now)
