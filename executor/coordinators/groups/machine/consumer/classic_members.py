"""Members of the classic protocol in a consumer group: their JoinGroup, SyncGroup and Heartbeat.

Such a member follows the same target assignment by rejoining: a heartbeat requests that
(REBALANCE_IN_PROGRESS) when there is a newer target, when it has to give up partitions, and when partitions
that it waits for are free. Its generation is its member epoch; there is no leader, and each member gets its
own assignment by its SyncGroup. Its owned partitions are in the subscription of its JoinGroup.

Source: Kafka's GroupMetadataManager.classicGroupJoinToConsumerGroup and its neighbours; KIP-848, upgrade.
"""

import logging
from dataclasses import replace

from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.response import SyncGroupResponse

from sparklog.executor.coordinators.groups.machine.classic.rebalance import join_error, sync_response
from sparklog.executor.coordinators.groups.machine.consumer.advance import Advance
from sparklog.executor.coordinators.groups.machine.consumer.consumer_protocol import (
    Subscription,
    read_subscription,
    write_assignment,
)
from sparklog.executor.coordinators.groups.machine.consumer.conversion import may_downgrade_replacing
from sparklog.executor.coordinators.groups.machine.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.group_context import GroupContext
from sparklog.executor.coordinators.groups.machine.consumer.heartbeats import check_holder, find_member
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember, MemberState
from sparklog.executor.coordinators.groups.machine.consumer.settings import MigrationPolicy
from sparklog.executor.coordinators.groups.machine.membership import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.executor.coordinators.records.consumer_offsets import ClassicMemberMetadata, ClassicProtocol
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class ClassicMembers:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._settings = context.settings
        self._leaving = context.leaving
        self._timeouts = context.leaving.timeouts

    # ---- JoinGroup -------------------------------------------------------------------------------------

    def join_group(self, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
        """Let a member join, or take a rejoining one a step further."""
        member_id = request.member_id or request.new_member_id
        try:
            group = self._group(request.group_id)
            self._check_join(group, request, member_id)
            if request.needs_known_member_id and not request.member_id and request.group_instance_id is None:
                return _answer(token, join_error(ErrorCode.member_id_required, member_id))
            return self._join(group, request, member_id, token, now)
        except KafkaError as error:
            return _answer(token, join_error(error.error_code))

    def _check_join(self, group: ConsumerGroup, request: JoinGroup, member_id: str) -> None:
        if self._settings.migration_policy is MigrationPolicy.DISABLED:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the "
                "group migration is disabled.",
            )
        if (
            len(group.members) >= self._settings.keys.group_consumer_max_size
            and member_id not in group.members
        ):
            raise KafkaError(ErrorCode.group_max_size_reached, "The consumer group is full.")
        names = [name for name, _ in request.protocols]
        if not names or not group.supports_classic_protocols(request.protocol_type, names):
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported."
            )

    def _join(
        self, group: ConsumerGroup, request: JoinGroup, member_id: str, token: Token, now: Now
    ) -> CoordinatorResult:
        subscription = read_subscription(request.protocols[0][1])
        advance = Advance(self._context, group, now, request.may_describe)
        try:
            before, replaced = self._find_or_create(advance, request, member_id)
            after = _joined(before, request, subscription)
            advance.update(before, after)
            downgrades = replaced is not None and may_downgrade_replacing(group, replaced, self._settings)
            # Without a rebalance the classic group's assignment is the target, which others may not have yet.
            rebalance = downgrades and (
                group.assignment_epoch < advance.group_epoch
                or not all(
                    member is replaced or member.is_reconciled_to(group.assignment_epoch)
                    for member in group.members.values()
                )
            )
            if not downgrades:
                advance.assign(before, after)
            if not rebalance:
                topics = self._settings.image.topics.by_name
                after = advance.reconcile(
                    after,
                    {
                        topics[name].topic_id: partitions
                        for name, partitions in subscription.owned_partitions.items()
                        if name in topics
                    },
                )
            if downgrades and replaced is not None:
                advance.records += self._leaving.downgrade(
                    group, (replaced,), after, now, rebalance=rebalance
                )
            else:
                timeout_ms = request.rebalance_timeout_ms
                self._timeouts.prolong(group.group_id, after.member_id, request.session_timeout_ms, now)
                self._timeouts.expect_sync(group.group_id, after.member_id, timeout_ms, now)
        except KafkaError:
            self._context.executor.abandon(advance.effects)
            raise
        response = unthrottled(
            JoinGroupResponse,
            error_code=ErrorCode.none,
            generation_id=after.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=request.protocols[0][0],
            leader="",
            member_id=after.member_id,
            members=(),
        )
        return CoordinatorResult(advance.records, (Reply(token, response),), advance.effects)

    def _find_or_create(
        self, advance: Advance, request: JoinGroup, member_id: str
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member as it was, and the holder of its instance id, which may be the member itself."""
        group = advance.group
        holder = group.static_member(request.group_instance_id)
        if request.group_instance_id is None:
            return find_member(group, member_id, create=True), None
        if request.member_id:
            holder = check_holder(holder, member_id, request.group_instance_id)
            return holder, holder
        if holder is None:
            return find_member(group, member_id, create=True), None
        member = replace(holder, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        advance.replace(holder, member)
        return member, holder

    # ---- SyncGroup, Heartbeat, LeaveGroup --------------------------------------------------------------

    def sync_group(self, request: SyncGroup, token: Token, now: Now) -> CoordinatorResult:
        try:
            group = self._group(request.group_id)
            member, classic = self._find(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation)
            first = classic.supported_protocols[0]
            if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
                request.protocol_name not in (None, first.name)
            ):
                raise KafkaError(
                    ErrorCode.inconsistent_group_protocol, "another protocol than it joined with"
                )
            if group.assignment_epoch > member.member_epoch and (
                member.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                self._timeouts.expect_join(group.group_id, member, now)
                raise KafkaError(ErrorCode.rebalance_in_progress, "there is a newer assignment")
            owned = {topic: frozenset(numbers) for topic, numbers in member.assigned_partitions.items()}
            assignment = write_assignment(owned, self._settings.image.topics, first.metadata)
        except KafkaError as error:
            return _answer(token, sync_response(error.error_code))
        self._timeouts.synced(group.group_id, member.member_id)
        self._timeouts.prolong(group.group_id, member.member_id, classic.session_timeout_ms, now)
        response = unthrottled(
            SyncGroupResponse,
            error_code=ErrorCode.none,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        )
        return CoordinatorResult(replies=(Reply(token, response),))

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> CoordinatorResult:
        """Prolong a session, and make the member rejoin if that takes it further."""
        try:
            group = self._group(request.group_id)
            member, classic = self._find(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation)
        except KafkaError as error:
            return _answer(token, unthrottled(HeartbeatResponse, error_code=error.error_code))
        self._timeouts.prolong(group.group_id, member.member_id, classic.session_timeout_ms, now)
        error_code = ErrorCode.none
        if (
            member.member_epoch < group.assignment_epoch
            # Kafka lacks this condition, and the last other member's partitions stay unassigned.
            or (group.assignment_epoch < group.group_epoch and group.all_speak_classic_except(()))
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member))
        ):
            error_code = ErrorCode.rebalance_in_progress
            self._timeouts.expect_join(group.group_id, member, now)
        return CoordinatorResult(
            replies=(Reply(token, unthrottled(HeartbeatResponse, error_code=error_code)),)
        )

    def leave_group(self, request: LeaveGroup, token: Token, now: Now) -> CoordinatorResult:
        """Remove members of either protocol, as admins do."""
        group = self._group(request.group_id)
        leaving: dict[str, ConsumerMember] = {}
        responses = []
        for one in request.members:
            try:
                member = self._find_leaving(group, one)
                leaving[member.member_id] = member
                error_code = ErrorCode.none
            except KafkaError as error:
                error_code = error.error_code
            responses.append(
                MemberResponse(
                    member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error_code
                )
            )
        logger.info("group %s: %s leave", group.group_id, ", ".join(leaving) or "none")
        response = unthrottled(LeaveGroupResponse, error_code=ErrorCode.none, members=tuple(responses))
        return CoordinatorResult(
            self._leaving.remove(group, tuple(leaving.values()), now), (Reply(token, response),)
        )

    # ---- lookup ----------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._context.groups[group_id]
        assert isinstance(group, ConsumerGroup), "the machine has asked the membership of the group's type"
        return group

    def _find(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicMemberMetadata]:
        if instance_id is None:
            member = find_member(group, member_id)
        else:
            member = check_holder(group.static_member(instance_id), member_id, instance_id)
        if member.classic is None:
            raise KafkaError(
                ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol."
            )
        return member, member.classic

    def _find_leaving(self, group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
        instance_id = leaving.group_instance_id
        if instance_id is None:
            return find_member(group, leaving.member_id)
        holder = group.static_member(instance_id)
        # An admin knows the instance id alone.
        known_as = leaving.member_id or ("" if holder is None else holder.member_id)
        return check_holder(holder, known_as, instance_id)


def _joined(before: ConsumerMember, request: JoinGroup, subscription: Subscription) -> ConsumerMember:
    return replace(
        before,
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in request.protocols
            ),
        ),
    )


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.member_epoch:
        raise KafkaError(
            ErrorCode.illegal_generation, f"generation {generation} is not {member.member_epoch}"
        )


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether another member still owns a partition of this member's target."""
    return any(
        partition not in member.assigned_partitions.get(topic_id, ())
        and group.owner(topic_id, partition) is not None
        for topic_id, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )


def _answer(token: Token, response: object) -> CoordinatorResult:
    """Refuse at once: an error depends on no uncommitted record."""
    return CoordinatorResult(replies=(Reply(token, response),), at_once=True)
