"""ConsumerGroupHeartbeat: the one request by which a member joins, reports, gets its assignment, and leaves.

A member sends all fields when it joins and after an error, otherwise only changed ones; the response has its
assignment after a full request or when the assignment has changed. An epoch of 0 joins, -1 leaves, and -2
announces that a static member will return.

Error messages are Kafka's: they end up in users' logs.

Source: KIP-848; Kafka's GroupMetadataManager.consumerGroupHeartbeat and GroupCoordinatorService.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup
from sparklog.executor.coordinators.groups.machine.consumer import records
from sparklog.executor.coordinators.groups.machine.consumer.advance import Advance
from sparklog.executor.coordinators.groups.machine.consumer.conversion import upgrade_records
from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.group_context import GroupContext
from sparklog.executor.coordinators.groups.machine.consumer.member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    OwnedPartitions,
)
from sparklog.executor.coordinators.groups.machine.consumer.reconciliation import ReportedPartitions
from sparklog.executor.coordinators.groups.machine.consumer.replay import replayed_alone
from sparklog.executor.coordinators.groups.machine.membership import MayDescribe
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorResult,
    Now,
    Outcome,
    Reply,
    Token,
)
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

CLIENT_GENERATED_MEMBER_ID_VERSION: Final = 1


class ConsumerGroupHeartbeat(NamedTuple):
    """Fields of a member's heartbeat; None for an unchanged one."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    api_version: int
    new_member_id: str
    """The id for a member of version 0 without one; generated outside, for machines have no randomness."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_topic_names: frozenset[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned_partitions: ReportedPartitions | None = None
    may_describe: MayDescribe | None = None
    """Topics that it may describe; None for all."""

    @property
    def says_everything(self) -> bool:
        """Whether the response has the assignment in any case."""
        return (
            self.rebalance_timeout_ms is not None
            and (self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None)
            and self.owned_partitions is not None
        )


def heartbeat_error(error_code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return unthrottled(
        ConsumerGroupHeartbeatResponse,
        error_code=error_code,
        error_message=message,
        member_epoch=0,
        heartbeat_interval=timedelta(),
    )


class Heartbeats:
    def __init__(self, context: GroupContext, release: Callable[[ClassicGroup, Now, Outcome], None]) -> None:
        """`release` makes the waiting members of a classic group rejoin when it is converted."""
        self._context = context
        self._settings = context.settings
        self._leaving = context.leaving
        self._release = release

    def heartbeat(self, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> CoordinatorResult:
        try:
            self._check(request)
            if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
                return self._leave(request, token, now)
            return self._join_or_stay(request, token, now)
        except KafkaError as error:
            response = heartbeat_error(error.error_code, error.message)
            return CoordinatorResult(replies=(Reply(token, response),), at_once=True)

    # ---- validation ------------------------------------------------------------------------------------

    def _check(self, request: ConsumerGroupHeartbeat) -> None:
        epoch = request.member_epoch
        if (
            request.api_version >= CLIENT_GENERATED_MEMBER_ID_VERSION
            or epoch > 0
            or epoch == LEAVE_GROUP_MEMBER_EPOCH
        ):
            _refuse_empty(request.member_id, "MemberId can't be empty.")
        _refuse_empty(request.group_id, "GroupId can't be empty.")
        _refuse_empty(request.instance_id, "InstanceId can't be empty.")
        _refuse_empty(request.rack_id, "RackId can't be empty.")
        if epoch == 0:
            if request.rebalance_timeout_ms is None:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.owned_partitions is None or request.owned_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        assignors = self._settings.keys.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise KafkaError(
                ErrorCode.unsupported_assignor,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(assignors)}.",
            )

    # ---- joining, and staying --------------------------------------------------------------------------

    def _join_or_stay(self, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> CoordinatorResult:
        out = Outcome()
        group = self._find_group(request, out)
        joins = request.member_epoch == 0
        member_id = request.member_id
        max_size = self._settings.keys.group_consumer_max_size
        if len(group.members) >= max_size and member_id not in group.members:
            raise KafkaError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {max_size} members.",
            )
        member_id = member_id or request.new_member_id
        advance = Advance(self._context, group, now, request.may_describe)
        try:
            if request.instance_id is None:
                before = find_member(group, member_id, create=joins)
                _check_epoch(before, request.member_epoch, request.owned_partitions)
            else:
                before = self._static_member(advance, request, member_id)
            after = self._advance(advance, before, request)
        except KafkaError:
            self._context.executor.abandon(advance.effects)
            raise
        # Only when no error can follow: this decision alone answers the members waiting there.
        former = self._context.groups.get(request.group_id)
        if isinstance(former, ClassicGroup) and not former.is_empty:
            self._upgrade(former, now, out)
        timeout_ms = self._settings.session_timeout_ms(request.group_id)
        self._leaving.timeouts.prolong(request.group_id, after.member_id, timeout_ms, now)
        tells = joins or request.says_everything or after.assigned_partitions != before.assigned_partitions
        response = unthrottled(
            ConsumerGroupHeartbeatResponse,
            error_code=ErrorCode.none,
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval=timedelta(milliseconds=self._settings.heartbeat_interval_ms(request.group_id)),
            assignment=_assignment(after.assigned_partitions) if tells else None,
        )
        out.reply(token, response)
        return CoordinatorResult((*out.records, *advance.records), out.replies, advance.effects)

    def _find_group(self, request: ConsumerGroupHeartbeat, out: Outcome) -> ConsumerGroup:
        """Return the group, or its future state after the replay of records that go into `out`."""
        group_id = request.group_id
        joins = request.member_epoch == 0
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None:
            if not joins:
                raise KafkaError(ErrorCode.group_id_not_found, f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id)
        if not joins or not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        if group.is_empty:
            out.records.extend(group.tombstones())
            return ConsumerGroup(group_id)
        made = upgrade_records(group, self._settings, self._context.hashes)
        out.records.extend((*group.tombstones(), *made))
        return replayed_alone(group_id, made)

    def _upgrade(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        logger.info("%s: converted to a consumer group by a joining member", group)
        self._release(group, now, out)
        self._context.timers.soon(partial(self._upgraded, group.group_id))

    def _upgraded(self, group_id: str, now: Now) -> None:
        """Start the sessions of classic members that were waiting before the conversion."""
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            for member in group.members.values():
                if member.classic is not None:
                    timeout_ms = member.classic.session_timeout_ms
                    self._leaving.timeouts.prolong(group_id, member.member_id, timeout_ms, now)

    def _static_member(
        self, advance: Advance, request: ConsumerGroupHeartbeat, member_id: str
    ) -> ConsumerMember:
        """Return the member of an instance id; a returning member replaces its former self."""
        instance_id = request.instance_id
        holder = advance.group.static_member(instance_id)
        if request.member_epoch != 0:
            holder = check_holder(holder, member_id, instance_id)
            _check_epoch(holder, request.member_epoch, request.owned_partitions)
            return holder
        if holder is None:
            return find_member(advance.group, member_id, create=True)
        if holder.classic is None and holder.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {holder.member_id} member.",
            )
        member = replace(holder, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        advance.replace(holder, member)
        return member

    def _advance(
        self, advance: Advance, before: ConsumerMember, request: ConsumerGroupHeartbeat
    ) -> ConsumerMember:
        names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
        regex = request.subscribed_topic_regex
        after = replace(
            before,
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
            server_assignor=request.server_assignor or before.server_assignor,
            subscribed_topic_names=before.subscribed_topic_names if names is None else names,
            subscribed_topic_regex=before.subscribed_topic_regex if regex is None else regex,
            client_id=request.client_id,
            client_host=request.client_host,
            classic=None,
        )
        advance.update(before, after)
        advance.assign(before, after)
        return advance.reconcile(after, request.owned_partitions)

    # ---- leaving ---------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> CoordinatorResult:
        group = self._context.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {request.group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(
                ErrorCode.group_id_not_found, f"Group {request.group_id} is not a consumer group."
            )
        if request.instance_id is None:
            member = find_member(group, request.member_id)
        else:
            holder = group.static_member(request.instance_id)
            member = check_holder(holder, request.member_id, request.instance_id)
        response = unthrottled(
            ConsumerGroupHeartbeatResponse,
            error_code=ErrorCode.none,
            member_id=member.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval=timedelta(),
        )
        if request.instance_id is not None and request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            logger.info("group %s: static member %s leaves temporarily", group.group_id, member.member_id)
            made = [records.current_assignment_record(group.group_id, _away(member))]
        else:
            logger.info("group %s: %s leaves", group.group_id, member.member_id)
            made = self._leaving.remove(group, (member,), now)
        return CoordinatorResult(made, (Reply(token, response),))


def find_member(group: ConsumerGroup, member_id: str, *, create: bool = False) -> ConsumerMember:
    """Return a member, or a new one if it may be created.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID.
    """
    member = group.members.get(member_id)
    if member is not None:
        return member
    if not create:
        raise KafkaError(
            ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return ConsumerMember(member_id)


def check_holder(holder: ConsumerMember | None, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the holder of an instance id.

    Raises:
        KafkaError: UNKNOWN_MEMBER_ID, there is none; FENCED_INSTANCE_ID, it is another member.
    """
    if holder is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.member_id}.",
        )
    return holder


def _check_epoch(member: ConsumerMember, received_epoch: int, reported: ReportedPartitions | None) -> None:
    """Refuse a member whose epoch differs from the coordinator's.

    A member with the previous epoch that owns only its own partitions is valid: it did not receive the last
    response.
    """
    if received_epoch in (0, member.member_epoch):
        return
    what = "greater" if received_epoch > member.member_epoch else "smaller"
    if received_epoch == member.previous_member_epoch and what == "smaller" and reported is not None:
        owned = member.assigned_partitions
        if all(
            partition in owned.get(topic_id, ())
            for topic_id, partitions in reported.items()
            for partition in partitions
        ):
            return
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {what} member epoch ({received_epoch}) than the one known by the "
        f"group coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _away(member: ConsumerMember) -> ConsumerMember:
    """Return a static member during its absence: its partitions count as assigned in epoch 0."""
    return replace(
        member,
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        partitions_pending_revocation=NO_PARTITIONS,
        assigned_partitions={
            topic_id: dict.fromkeys(partitions, 0)
            for topic_id, partitions in member.assigned_partitions.items()
        },
    )


def _assignment(owned: OwnedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(owned[topic_id])))
            for topic_id in sorted(owned)
        )
    )


def _refuse_empty(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
