"""One step of a member towards its target assignment: revocations first, then new partitions.

The rule: a partition has one owner. So a member that has to give up partitions stays in its epoch until it
reports that it no longer owns them, and a partition of another owner is left out until then.

A topic that the member no longer subscribes to counts as not assigned, even if the target has it: the target
may be older than the subscription.

Source: Kafka's CurrentAssignmentBuilder.
"""

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.assignors import Assignment
from sparklog.executor.coordinators.groups.machine.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
)
from sparklog.protocol.errors import ErrorCode, KafkaError

ReportedPartitions: TypeAlias = Mapping[UUID, Collection[int]]
"""Partitions that a member reports as owned."""


def reconcile(
    member: ConsumerMember,
    *,
    assignment_epoch: int,
    target: Assignment,
    subscribed_topic_ids: Set[UUID],
    subscription_changed: bool,
    reported: ReportedPartitions | None,
    owner: Callable[[UUID, int], str | None],
) -> ConsumerMember:
    """Return the member after the next step; itself if there is none to take now.

    `reported` is None if the member does not report its partitions, which reports no revocation either.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH, the member's state is unknown to this version.
    """
    step = _Step(member, assignment_epoch, target, subscribed_topic_ids, reported, owner)
    match member.state:
        case MemberState.STABLE if member.member_epoch == assignment_epoch:
            return step.drop_unsubscribed() if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if step.still_owns(member.partitions_pending_revocation):
            return step.drop_unsubscribed() if subscription_changed else member
        case MemberState.UNKNOWN if reported is None or reported:
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The consumer group member is in a unknown state. The member must abandon all its partitions "
                "and rejoin.",
            )
        case _:
            return step.take()


class _Step:
    def __init__(
        self,
        member: ConsumerMember,
        assignment_epoch: int,
        target: Assignment,
        subscribed_topic_ids: Set[UUID],
        reported: ReportedPartitions | None,
        owner: Callable[[UUID, int], str | None],
    ) -> None:
        self._member = member
        self._assignment_epoch = assignment_epoch
        self._target = target
        self._subscribed_topic_ids = subscribed_topic_ids
        self._reported = reported
        self._owner = owner

    def still_owns(self, partitions: OwnedPartitions) -> bool:
        """Whether the member reports some of these as owned, or reports nothing."""
        return self._reported is None or any(
            partition in partitions.get(topic_id, ())
            for topic_id, reported in self._reported.items()
            for partition in reported
        )

    def drop_unsubscribed(self) -> ConsumerMember:
        """Revoke partitions of topics that the member does not subscribe to, and no others."""
        member = self._member
        dropped = {
            topic_id: partitions
            for topic_id, partitions in member.assigned_partitions.items()
            if topic_id not in self._subscribed_topic_ids
        }
        if not dropped:
            return member
        kept = {
            topic_id: partitions
            for topic_id, partitions in member.assigned_partitions.items()
            if topic_id not in dropped
        }
        pending = dict(member.partitions_pending_revocation)
        for topic_id, partitions in dropped.items():
            pending[topic_id] = {**pending.get(topic_id, {}), **partitions}
        if self.still_owns(pending):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_member_epoch=member.member_epoch,
                assigned_partitions=kept,
                partitions_pending_revocation=pending,
            )
        return replace(member, previous_member_epoch=member.member_epoch, assigned_partitions=kept)

    def take(self) -> ConsumerMember:
        member = self._member
        kept: dict[UUID, Mapping[int, int]] = {}
        to_revoke: dict[UUID, Mapping[int, int]] = {}
        for topic_id, assigned in member.assigned_partitions.items():
            target = self._target_of(topic_id)
            staying = {partition: epoch for partition, epoch in assigned.items() if partition in target}
            if staying:
                kept[topic_id] = staying
            if len(staying) < len(assigned):
                to_revoke[topic_id] = {
                    partition: epoch for partition, epoch in assigned.items() if partition not in target
                }
        if to_revoke and self.still_owns(to_revoke):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_member_epoch=member.member_epoch,
                assigned_partitions=kept,
                partitions_pending_revocation=to_revoke,
            )

        waits = False
        for topic_id in self._target:
            missing = self._target_of(topic_id) - kept.get(topic_id, {}).keys()
            free = {partition for partition in missing if self._is_free(topic_id, partition)}
            waits = waits or len(free) < len(missing)
            if free:
                kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(free, self._assignment_epoch)}
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
            previous_member_epoch=member.member_epoch,
            member_epoch=self._assignment_epoch,
            assigned_partitions=kept,
            partitions_pending_revocation=NO_PARTITIONS,
        )

    def _target_of(self, topic_id: UUID) -> Set[int]:
        subscribed = topic_id in self._subscribed_topic_ids
        return self._target.get(topic_id, frozenset()) if subscribed else frozenset()

    def _is_free(self, topic_id: UUID, partition: int) -> bool:
        """Whether it has no owner; a partition that the member has just given up is free for it."""
        given_up = partition in self._member.partitions_pending_revocation.get(topic_id, ())
        return given_up or self._owner(topic_id, partition) is None
