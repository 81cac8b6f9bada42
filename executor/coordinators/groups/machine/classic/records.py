"""The record of a classic group, GroupMetadata: one generation with its members' assignments.

A member's record has only the metadata of the selected protocol, so a loaded group supports no other; members
send all of theirs when they rejoin.

A generation with members and without a leader is that of a consumer group converted to a classic one whose
members must rejoin: a coordinator that loads it begins the rebalance. In Kafka a failover just after the
conversion loses that rebalance, and partitions of the last member of the consumer protocol stay unassigned
until something changes. Kafka's coordinator takes the first member of such a record for the leader.

Source: Kafka's GroupCoordinatorRecordHelpers and GroupMetadataManager.replay.
"""

from collections.abc import Mapping

from sparklog.executor.coordinators.groups.machine.classic.group import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
)
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.executor.coordinators.records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from sparklog.protocol.types import TimestampMs, or_minus_one, unless_minus_one


def created_group(group_id: str, wall_ms: TimestampMs) -> CoordinatorRecord:
    return CoordinatorRecord(
        GroupMetadataKey(group=group_id),
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=wall_ms,
            members=(),
        ),
    )


def member_metadata(member: ClassicMember, protocol_name: str, assignment: bytes) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol_name),
        assignment=assignment,
    )


def generation_record(
    group: ClassicGroup, members: tuple[MemberMetadata, ...], *, leader_id: str | None
) -> CoordinatorRecord:
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=leader_id,
            current_state_timestamp=or_minus_one(group.state_timestamp_ms),
            members=members,
        ),
    )


def assigned_generation(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of the group's generation with these assignments; the other members' are empty."""
    assert group.protocol_name is not None, "a generation with members has a protocol"
    protocol_name = group.protocol_name
    return generation_record(
        group,
        tuple(
            member_metadata(member, protocol_name, assignments.get(member.member_id, b""))
            for member in group.members.values()
        ),
        leader_id=group.leader_id,
    )


def loaded_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a record: stable if it has members, otherwise empty."""
    group = ClassicGroup(
        group_id,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
        state_timestamp_ms=unless_minus_one(value.current_state_timestamp),
    )
    for member in value.members:
        group.add(
            ClassicMember(
                member.member_id,
                member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=(
                    member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout
                ),
                session_timeout_ms=member.session_timeout,
                protocols=((value.protocol or "", member.subscription),),
                assignment=member.assignment,
            ),
            value.protocol_type,
        )
    if value.members:
        group.state = ClassicGroupState.STABLE
        group.must_rebalance = value.leader is None
    group.subscribed_topics = group.read_subscriptions()
    return group
