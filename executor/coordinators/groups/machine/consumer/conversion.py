"""Conversion of a group with members: to the consumer protocol with the first member of it, and back.

A group is converted back when its last member of the consumer protocol has left.

Members keep reading. A classic group becomes a consumer group whose members have their last assignment; the
joining member changes it. A consumer group becomes a classic one with its members' partitions; if these
differ from the target assignment, the members must rejoin.

Only records convert a group: the tombstones of one type and the records of the other, in one batch.

Source: Kafka's ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup; KIP-848, upgrade.
"""

import logging
from collections.abc import Collection, Mapping, Set
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup, ClassicMember
from sparklog.executor.coordinators.groups.machine.classic.records import assigned_generation
from sparklog.executor.coordinators.groups.machine.consumer import records
from sparklog.executor.coordinators.groups.machine.consumer.consumer_protocol import (
    MalformedConsumerProtocolError,
    read_assignment,
    read_subscription,
    write_assignment,
)
from sparklog.executor.coordinators.groups.machine.consumer.group import (
    CONSUMER_PROTOCOL_TYPE,
    INITIAL_EPOCH,
    ConsumerGroup,
)
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember, MemberState
from sparklog.executor.coordinators.groups.machine.consumer.metadata_hash import TopicHashes
from sparklog.executor.coordinators.groups.machine.consumer.records import group_tombstones
from sparklog.executor.coordinators.groups.machine.consumer.settings import Settings
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.executor.coordinators.records.consumer_offsets import ClassicMemberMetadata, ClassicProtocol
from sparklog.node.metadata.image import TopicsImage
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TimestampMs

logger = logging.getLogger(__name__)


def upgrade_records(group: ClassicGroup, settings: Settings, hashes: TopicHashes) -> list[CoordinatorRecord]:
    """Return the records that convert a classic group, without its tombstone.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, the group cannot be converted; the message has the reason.
    """
    if not settings.migration_policy.upgrades:
        raise _cannot_upgrade(group, "online upgrade is disabled")
    if not group.speaks_consumer_protocol:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.keys.group_consumer_max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size")
    image = settings.image
    # Before its first generation the group has 0, which no member epoch may be: 0 means joining.
    epoch = max(group.generation, INITIAL_EPOCH)
    try:
        assigned = {member.member_id: _assigned(group, member) for member in group.members.values()}
        taken = {
            (topic, partition)
            for partitions_of in assigned.values()
            for topic, partitions in partitions_of.items()
            for partition in partitions
        }
        members = [
            _upgraded(group, member, epoch, assigned[member.member_id], taken, image.topics)
            for member in group.members.values()
        ]
    except MalformedConsumerProtocolError as error:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from error
    group_id = group.group_id
    topics = {topic for member in members for topic in member.subscribed_topic_names}
    return [
        *(records.member_record(group_id, member) for member in members),
        records.epoch_record(
            group_id, epoch, hashes.of_group(topics, image) if _has_all(taken, topics, image.topics) else 0
        ),
        *(
            records.target_assignment_record(
                group_id,
                member.member_id,
                {topic_id: frozenset(numbers) for topic_id, numbers in member.assigned_partitions.items()},
            )
            for member in members
        ),
        records.assignment_epoch_record(group_id, epoch, 0),
        *(records.current_assignment_record(group_id, member) for member in members),
    ]


def _has_all(taken: Set[tuple[str, int]], topics: Set[str], image: TopicsImage) -> bool:
    """Whether all partitions that the members subscribe to are assigned to them.

    A cooperative group may be between two rebalances, and its leader will not trigger the second one any
    more. As there is no hash of the topics then assigned, the group gets a new assignment at once. In Kafka
    such partitions stay unassigned until something changes, and a static member that changes the protocol in
    its old place does not count as a change.
    """
    return all(
        (name, partition) in taken
        for name in topics
        if name in image.by_name
        for partition in image.by_name[name].partitions
    )


def _assigned(group: ClassicGroup, member: ClassicMember) -> Mapping[str, Collection[int]]:
    if not member.assignment:
        return {}
    assigned, says_more = read_assignment(member.assignment)
    if says_more:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade",
        )
    return assigned


def _upgraded(
    group: ClassicGroup,
    member: ClassicMember,
    epoch: int,
    assigned: Mapping[str, Collection[int]],
    taken: Set[tuple[str, int]],
    topics: TopicsImage,
) -> ConsumerMember:
    """Return the member as one of the consumer group; `taken` are all assigned partitions.

    A cooperative member may still read partitions that it owned when it joined and that are no longer
    assigned to it (KIP-429): it rejoins after it has given them up. Kafka considers them free at once.
    """
    # Before its first generation a group has no protocol, and a member may have rejoined with others.
    metadata = dict(member.protocols).get(group.protocol_name or "", member.protocols[0][1])
    subscription = read_subscription(metadata)
    still_owned = {
        name: [partition for partition in partitions if (name, partition) not in taken]
        for name, partitions in subscription.owned_partitions.items()
    }
    pending = _by_topic_id(still_owned, epoch, topics)
    return ConsumerMember(
        member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        state=MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=subscription.topics,
        assigned_partitions=_by_topic_id(assigned, epoch, topics),
        partitions_pending_revocation=pending,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols
            ),
        ),
    )


def _by_topic_id(
    partitions_of: Mapping[str, Collection[int]], epoch: int, topics: TopicsImage
) -> dict[UUID, dict[int, int]]:
    return {
        topics.by_name[name].topic_id: dict.fromkeys(partitions, epoch)
        for name, partitions in partitions_of.items()
        if name in topics.by_name and partitions
    }


def may_downgrade(group: ConsumerGroup, leaving: Collection[ConsumerMember], settings: Settings) -> bool:
    """Whether members remain without these, and all of them speak the classic protocol."""
    left = len(group.members) - len(leaving)
    return (
        0 < left <= settings.keys.group_max_size
        and group.all_speak_classic_except(leaving)
        and settings.migration_policy.downgrades
    )


def may_downgrade_replacing(group: ConsumerGroup, replaced: ConsumerMember, settings: Settings) -> bool:
    """Whether all members speak the classic protocol once one of them has replaced this member."""
    return (
        replaced.classic is None
        and group.all_speak_classic_except((replaced,))
        and settings.migration_policy.downgrades
        and len(group.members) <= settings.keys.group_max_size
    )


def downgrade_records(
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    topics: TopicsImage,
    wall_ms: TimestampMs,
    *,
    rebalance: bool,
) -> list[CoordinatorRecord]:
    """Return the records that convert a consumer group, without the leaving members.

    `joining` replaces the one static member that leaves, by records before these. Before a `rebalance`, which
    a generation without a leader asks for, each member is assigned its present partitions. Kafka assigns the
    targets: a member that has to give up partitions may not know it yet when the next member of the consumer
    protocol converts the group again.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, a member's metadata are not of the consumer protocol.
    """
    gone = {member.member_id for member in leaving}
    staying = {
        member.member_id: (member, member.member_id)
        for member in group.members.values()
        if member.member_id not in gone
    }
    member_ids = list(group.members)
    if joining is not None:
        (replaced,) = leaving
        member_ids[member_ids.index(replaced.member_id)] = joining.member_id
        staying[joining.member_id] = joining, replaced.member_id
    classic = ClassicGroup(
        group.group_id,
        generation=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state_timestamp_ms=wall_ms,
    )
    for member, _ in staying.values():
        classic.add(_downgraded(member), CONSUMER_PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    try:
        assignments = {
            member_id: write_assignment(
                _held(member) if rebalance else group.targets.get(target_of, {}),
                topics,
                classic.members[member_id].metadata(classic.protocol_name),
            )
            for member_id, (member, target_of) in staying.items()
        }
    except MalformedConsumerProtocolError as error:
        raise KafkaError(
            ErrorCode.group_id_not_found,
            f"Cannot downgrade the classic group {group.group_id}: {error.message}.",
        ) from error
    if rebalance:
        classic.leader_id = None
    return [
        *group_tombstones(group.group_id, member_ids, tuple(group.resolved)),
        assigned_generation(classic, assignments),
    ]


def _held(member: ConsumerMember) -> dict[UUID, frozenset[int]]:
    """Return a member's partitions, both assigned and pending revocation."""
    assigned, pending = member.assigned_partitions, member.partitions_pending_revocation
    return {
        topic_id: frozenset(assigned.get(topic_id, ())) | frozenset(pending.get(topic_id, ()))
        for topic_id in assigned.keys() | pending.keys()
    }


def _downgraded(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None, "all remaining members speak the classic protocol"
    return ClassicMember(
        member.member_id,
        member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple(
            (protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols
        ),
    )


def _cannot_upgrade(group: ClassicGroup, why: str) -> KafkaError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    logger.info("%s", message)  # the members' error code has no reason
    return KafkaError(ErrorCode.group_id_not_found, message)
