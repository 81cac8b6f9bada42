"""Effect of one request on a consumer group, in either protocol of the member.

In this order: the member's new metadata are recorded (`update`); if these or the topics changed, the group
epoch rises; if the target assignment is older than that, the next one is computed (`assign`); and the member
takes one step towards it (`reconcile`). All records belong to one decision and hold only after their replay,
so each step gets the member that the earlier ones produced.

Source: Kafka's GroupMetadataManager.consumerGroupHeartbeat and classicGroupJoinToConsumerGroup.
"""

import logging
from enum import Enum, auto
from functools import partial
from typing import Any

from sparklog.executor.coordinators.groups.machine.assignors import ASSIGNORS, Assignment
from sparklog.executor.coordinators.groups.machine.assignors.specification import NOTHING
from sparklog.executor.coordinators.groups.machine.consumer import records
from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.group_context import GroupContext
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember
from sparklog.executor.coordinators.groups.machine.consumer.reconciliation import (
    ReportedPartitions,
    reconcile,
)
from sparklog.executor.coordinators.groups.machine.consumer.regular_expressions import (
    check_regular_expression,
    matching_topics,
    wants_refresh,
)
from sparklog.executor.coordinators.groups.machine.consumer.target import (
    TargetSearch,
    may_assign,
    target_records,
    target_search,
)
from sparklog.executor.coordinators.groups.machine.membership import MayDescribe
from sparklog.executor.coordinators.machine.coordinator_machine import NOTHING as NO_DECISION
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    RunInExecutor,
)

logger = logging.getLogger(__name__)


class _Regex(Enum):
    AS_BEFORE = auto()
    UNRESOLVED = auto()
    """A new one, not resolved yet; the group epoch rises with its resolution."""
    RESOLVED = auto()
    """A new one that is already resolved, or none."""


class Advance:
    """One decision about one group in the making; the group's own records may not be replayed yet."""

    def __init__(
        self,
        context: GroupContext,
        group: ConsumerGroup,
        now: Now,
        may_describe: MayDescribe | None,
    ) -> None:
        """`may_describe` selects the topics that the client may describe; None for all."""
        self._context = context
        self._may_describe = may_describe
        self._settings = context.settings
        self.group = group
        self._now = now
        self.records: list[CoordinatorRecord] = []
        self.effects: list[RunInExecutor] = []
        self.group_epoch = group.group_epoch
        self.subscription_changed = False
        self._target: tuple[int, Assignment] | None = None

    # ---- the member, and the group's epoch -------------------------------------------------------------

    def replace(self, former: ConsumerMember, member: ConsumerMember) -> None:
        """Give a static member's place to its successor with another member id."""
        group_id = self.group.group_id
        self.records += records.member_tombstones(group_id, former.member_id)
        self.records.append(records.member_record(group_id, member))
        target = self.group.targets.get(former.member_id, NOTHING)
        self.records.append(records.target_assignment_record(group_id, member.member_id, target))
        self.records.append(records.current_assignment_record(group_id, member))

    def update(self, before: ConsumerMember, after: ConsumerMember) -> None:
        """Record the member's metadata, and raise the group epoch if the assignment may change.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        group = self.group
        if after != before:
            self.records.append(records.member_record(group.group_id, after))
        names_changed = after.subscribed_topic_names != before.subscribed_topic_names
        regex = self._update_regex(before, after)
        self.subscription_changed = names_changed or regex is not _Regex.AS_BEFORE
        bump = names_changed or regex is _Regex.RESOLVED
        if bump or group.checked_in_epoch is None or group.group_epoch < group.checked_in_epoch:
            self._check_metadata(before, after, bump=bump)

    def _update_regex(self, before: ConsumerMember, after: ConsumerMember) -> _Regex:
        group = self.group
        old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
        subscribers = dict(group.regex_subscribers)
        brings_new = False
        outcome = _Regex.AS_BEFORE
        if old != new:
            outcome = _Regex.RESOLVED if not new or new in group.resolved else _Regex.UNRESOLVED
            if new and new not in subscribers:
                check_regular_expression(new)
                brings_new = True
                outcome = _Regex.UNRESOLVED
            if old:
                if subscribers.get(old) == 1:
                    self.records.append(records.regular_expression_tombstone(group.group_id, old))
                subscribers[old] = subscribers.get(old, 1) - 1
            if new:
                subscribers[new] = subscribers.get(new, 0) + 1
        subscribed = [regex for regex, count in subscribers.items() if count > 0]
        executor = self._context.executor
        if not executor.is_running(group.group_id, RESOLUTION) and wants_refresh(
            group,
            subscribed,
            brings_new=brings_new,
            topics_created_at=self._context.topics_created_at,
            refresh_interval_ms=self._settings.keys.group_consumer_regex_refresh_interval_ms,
            wall_ms=self._now.wall_ms,
        ):
            image = self._settings.image
            self.effects.append(
                executor.begin(
                    group.group_id,
                    RESOLUTION,
                    partial(matching_topics, subscribed, image.topics.by_name.keys(), self._may_describe),
                    partial(self._resolved, image.end_offset, self._now.wall_ms),
                )
            )
        return outcome

    def _check_metadata(self, before: ConsumerMember, after: ConsumerMember, *, bump: bool) -> None:
        group = self.group
        old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
        forgotten = (old,) if old and old != new and group.regex_subscribers[old] == 1 else ()
        topics = group.subscribed_topics((before,), (after,), forgotten=forgotten)
        metadata_hash = self._context.hashes.of_group(topics, self._settings.image)
        if bump or metadata_hash != group.metadata_hash:
            self.group_epoch += 1
            self.records.append(records.epoch_record(group.group_id, self.group_epoch, metadata_hash))
        group.checked_in_epoch = self.group_epoch

    # ---- the target assignment -------------------------------------------------------------------------

    def assign(self, before: ConsumerMember, after: ConsumerMember) -> None:
        """Compute the target assignment of the group epoch, unless it exists or is too early."""
        group, settings = self.group, self._settings
        if group.assignment_epoch >= self.group_epoch:
            return
        interval_ms = settings.assignment_interval_ms(group.group_id)
        if not may_assign(group, interval_ms, self._now.wall_ms):
            return
        assignor = group.preferred_assignor(settings.default_assignor, before, after)
        search = target_search(group, self.group_epoch, after, settings.image.topics, ASSIGNORS[assignor])
        by_name = settings.image.topics.by_name
        topics = group.subscribed_topics((before,), (after,))
        partition_count = sum(len(by_name[name].partitions) for name in topics if name in by_name)
        if search.takes_long(partition_count):
            executor = self._context.executor
            if not executor.is_running(group.group_id, ASSIGNMENT):
                self.effects.append(
                    executor.begin(group.group_id, ASSIGNMENT, search.find, partial(self._assigned, search))
                )
            return
        found = search.find()
        logger.info(
            "group %s: new target assignment by %s for epoch %d", group.group_id, assignor, self.group_epoch
        )
        # A replaced static member's target is already recorded for its successor in this decision.
        self.records += target_records(
            group.group_id, search, found, search.members, search.targets, self._now.wall_ms
        )
        self._target = self.group_epoch, found[after.member_id]

    def target(self, member: ConsumerMember) -> tuple[int, Assignment]:
        """Return the epoch of the present target assignment, and the member's part of it."""
        if self._target is not None:
            return self._target
        group = self.group
        holder = group.static_member(member.instance_id)
        member_id = member.member_id if holder is None else holder.member_id
        return group.assignment_epoch, group.targets.get(member_id, NOTHING)

    # ---- the member's step -----------------------------------------------------------------------------

    def reconcile(self, member: ConsumerMember, reported: ReportedPartitions | None) -> ConsumerMember:
        """Take the member one step towards the target assignment; return its new state.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH, the member is in a state that this version does not know.
        """
        assignment_epoch, target = self.target(member)
        if not self.subscription_changed and member.is_reconciled_to(assignment_epoch):
            return member
        topics = self._settings.image.topics.by_name
        subscribed = self.group.member_topics(member)
        updated = reconcile(
            member,
            assignment_epoch=assignment_epoch,
            target=target,
            subscribed_topic_ids={topics[name].topic_id for name in subscribed if name in topics},
            subscription_changed=self.subscription_changed,
            reported=reported,
            owner=self.group.owner,
        )
        if updated != member:
            self.records.append(records.current_assignment_record(self.group.group_id, updated))
            if updated.classic is None:
                self._context.leaving.timeouts.expect_revocation(self.group.group_id, updated, self._now)
        return updated

    # ---- results from outside of the loop --------------------------------------------------------------

    def _assigned(self, search: TargetSearch, found: dict[str, Assignment], now: Now) -> CoordinatorResult:
        group = self._context.groups.get(self.group.group_id)
        if not isinstance(group, ConsumerGroup) or not (
            group.assignment_epoch < search.group_epoch <= group.group_epoch
        ):
            return NO_DECISION
        logger.info("group %s: new target assignment for epoch %d", group.group_id, search.group_epoch)
        return CoordinatorResult(
            target_records(group.group_id, search, found, group.members, group.targets, now.wall_ms)
        )

    def _resolved(
        self, version: int, wall_ms: int, found: dict[str, frozenset[str]], now: Now
    ) -> CoordinatorResult:
        """Record the topics of regular expressions; the group epoch rises if they have changed."""
        group = self._context.groups.get(self.group.group_id)
        if not isinstance(group, ConsumerGroup):
            return NO_DECISION
        made: list[CoordinatorRecord] = []
        changed = False
        topics = group.subscribed_topics(
            forgotten=[regex for regex in found if regex in group.regex_subscribers]
        )
        for regex, matching in found.items():
            if regex in group.regex_subscribers:
                before: Any = group.resolved.get(regex)
                changed = changed or (frozenset() if before is None else before.topics) != matching
                topics |= matching
                made.append(
                    records.regular_expression_record(group.group_id, regex, matching, version, wall_ms)
                )
        metadata_hash = self._context.hashes.of_group(topics, self._settings.image)
        if changed or metadata_hash != group.metadata_hash:
            made.append(records.epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
            group.checked_in_epoch = group.group_epoch + 1
        return CoordinatorResult(made)


ASSIGNMENT = "the assignment"
RESOLUTION = "the resolution of regular expressions"
