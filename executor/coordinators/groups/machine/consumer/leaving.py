"""Removal of members: on request, after a time-out, or by an admin.

Their records are deleted, and the group epoch rises, so that the next heartbeat redistributes their
partitions. If all remaining members speak the classic protocol, the group is converted to a classic one
instead (`conversion`).

Source: Kafka's GroupMetadataManager.consumerGroupFenceMembers.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sparklog.executor.coordinators.groups.machine.consumer import records
from sparklog.executor.coordinators.groups.machine.consumer.conversion import downgrade_records, may_downgrade
from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember
from sparklog.executor.coordinators.groups.machine.consumer.member_timeouts import MemberTimeouts
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

Downgraded = Callable[[str, bool, Now], CoordinatorResult | None]
"""(group id, whether to rebalance it, now): continue a group that has become a classic one."""


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
        self._timers.soon(partial(self._downgraded, group.group_id, rebalance))
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
