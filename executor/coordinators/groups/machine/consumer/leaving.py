"""Removal of members: on request, after a time-out, or by an admin.

Their records are deleted, and the group epoch rises, so that the next heartbeat redistributes their
partitions. If all remaining members speak the classic protocol, the group is converted to a classic one
instead (`conversion`).

Source: Kafka's GroupMetadataManager.consumerGroupFenceMembers.

Time-outs of a consumer group's members.

    session     any sign of life; a silent member is removed
    rebalance   a member that has to revoke partitions does so, or is removed: others wait for them
    join        a classic member has to rejoin after a heartbeat with REBALANCE_IN_PROGRESS,
    sync        and to send SyncGroup after it has joined

An expired timer looks up group and member again: they may be gone or have changed.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from sparklog.executor.coordinators.groups.machine.consumer import records
from sparklog.executor.coordinators.groups.machine.consumer.conversion import downgrade_records, may_downgrade
from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember, MemberState
from sparklog.executor.coordinators.groups.machine.consumer.metadata_hash import TopicHashes
from sparklog.executor.coordinators.groups.machine.consumer.settings import Settings
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
)
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.executor.coordinators.records.consumer_offsets import ConsumerGroupMemberMetadataKey
from sparklog.protocol.errors import KafkaError

logger = logging.getLogger(__name__)

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


Downgraded = Callable[[str, Now], CoordinatorResult | None]
"""(group id, now): continue a group that has become a classic one."""


class Leaving:
    def __init__(
        self,
        groups: Mapping[str, Group],
        timers: Timers,
        settings: Settings,
        hashes: TopicHashes,
        downgraded: Downgraded,
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._settings = settings
        self._hashes = hashes
        self._downgraded = downgraded
        self.timeouts = MemberTimeouts(groups, timers, self._expired)

    def remove(
        self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], now: Now
    ) -> list[CoordinatorRecord]:
        if not leaving:
            return []
        self.timeouts.end(group.group_id, [member.member_id for member in leaving])
        if may_downgrade(group, leaving, self._settings):
            try:
                return self.downgrade(group, leaving, None, now, rebalance=True)
            except KafkaError as error:
                logger.warning("group %s stays a consumer group: %s", group.group_id, error)
        group_id = group.group_id
        regexes = Counter(member.subscribed_topic_regex for member in leaving)
        forgotten = [
            regex for regex, count in regexes.items() if regex and group.regex_subscribers[regex] == count
        ]
        topics = group.subscribed_topics(leaving, forgotten=forgotten)
        metadata_hash = self._hashes.of_group(topics, self._settings.image)
        return [
            *(
                tombstone
                for member in leaving
                for tombstone in records.member_tombstones(group_id, member.member_id)
            ),
            *(records.regular_expression_tombstone(group_id, regex) for regex in forgotten),
            records.epoch_record(group_id, group.group_epoch + 1, metadata_hash),
        ]

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Sequence[ConsumerMember],
        joining: ConsumerMember | None,
        now: Now,
        *,
        rebalance: bool,
    ) -> list[CoordinatorRecord]:
        """Return the records that convert the group to a classic one, which continues after their replay.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, the group cannot be converted.
        """
        logger.info(
            "group %s: converted to a classic group, as all members speak that protocol", group.group_id
        )
        made = downgrade_records(
            group, leaving, joining, self._settings.image.topics, now.wall_ms, rebalance=rebalance
        )
        self.timeouts.end(group.group_id, list(group.members))
        self._timers.soon(partial(self._downgraded, group.group_id))
        return made

    def append_failed(self, decision: CoordinatorResult, now: Now) -> None:
        """Restart sessions of members whose removal was not appended."""
        for record in decision.records:
            key = record.key
            if isinstance(key, ConsumerGroupMemberMetadataKey) and record.value is None:
                group = self._groups.get(key.group_id)
                if isinstance(group, ConsumerGroup):
                    self.begin_sessions(group, now)

    def begin_sessions(self, group: ConsumerGroup, now: Now) -> None:
        """Start every member's session in full: after a load or a failed append."""
        timeout_ms = self._settings.session_timeout_ms(group.group_id)
        for member in group.members.values():
            self.timeouts.prolong(group.group_id, member.member_id, timeout_ms, now)
            self.timeouts.expect_revocation(group.group_id, member, now)

    def _expired(self, group: ConsumerGroup, member: ConsumerMember, why: str, now: Now) -> CoordinatorResult:
        logger.info("group %s: %s is removed, %s", group.group_id, member.member_id, why)
        return CoordinatorResult(self.remove(group, (member,), now))
