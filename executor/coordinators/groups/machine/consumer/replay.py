"""Replay of consumer groups' records: only here is a group created, changed and deleted.

A tombstone without its record is skipped: compaction may have left it alone. A record whose id belongs to an
empty classic group made by commits alone replaces that group, as in Kafka.

Source: the `replay` methods of Kafka's GroupMetadataManager.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from sparklog.executor.coordinators.groups.machine.assignors import Assignment
from sparklog.executor.coordinators.groups.machine.consumer.group import (
    ConsumerGroup,
    ResolvedRegularExpression,
    TopicSubscribers,
)
from sparklog.executor.coordinators.groups.machine.consumer.member import (
    LEAVE_GROUP_MEMBER_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
)
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.groups.machine.membership import Replay
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.executor.coordinators.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
)


class ConsumerReplay:
    def __init__(self, groups: MutableMapping[str, Group], removed: Callable[[str], None]) -> None:
        """`removed` is called with the ids of deleted groups."""
        self._groups = groups
        self._removed = removed
        self.group_ids: dict[str, None] = {}
        """Ids of consumer groups in the order of their records, equal on all brokers.

        The partition may have a million other groups.
        """
        self.subscribers = TopicSubscribers()
        self.replays: Mapping[type[Any], Replay] = {
            ConsumerGroupMetadataKey: self._group,
            ConsumerGroupMemberMetadataKey: self._member,
            ConsumerGroupTargetAssignmentMetadataKey: self._assignment_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._target_assignment,
            ConsumerGroupCurrentMemberAssignmentKey: self._current_assignment,
            ConsumerGroupRegularExpressionKey: self._regular_expression,
        }

    def _find(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _find_or_create(self, group_id: str) -> ConsumerGroup:
        group = self._find(group_id)
        if group is None:
            group = ConsumerGroup(group_id, self.subscribers)
            self._groups[group_id] = group
            self.group_ids[group_id] = None
        return group

    def _group(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        else:
            gone = self._find(key.group_id)
            if gone is not None:
                gone.unsubscribe()
                del self._groups[key.group_id]
                self.group_ids.pop(key.group_id, None)
                self._removed(key.group_id)

    def _member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                group.remove_member(key.member_id)
            return
        group = self._find_or_create(key.group_id)
        group.put_member(
            replace(
                group.members.get(key.member_id) or ConsumerMember(key.member_id),
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=frozenset(value.subscribed_topic_names),
                subscribed_topic_regex=value.subscribed_topic_regex or "",
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic=value.classic_member_metadata,
            )
        )

    def _assignment_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            group.assignment_epoch = value.assignment_epoch
            group.assignment_timestamp_ms = value.assignment_timestamp

    def _target_assignment(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is not None:
            self._find_or_create(key.group_id).targets[key.member_id] = _target(value)
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.targets.pop(key.member_id, None)

    def _current_assignment(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        if value is None:
            found = self._find(key.group_id)
            if found is not None and key.member_id in found.members:
                # The member's own tombstone follows; until then it owns nothing.
                found.put_member(
                    replace(
                        found.members[key.member_id],
                        member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                        previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                        assigned_partitions=NO_PARTITIONS,
                        partitions_pending_revocation=NO_PARTITIONS,
                    )
                )
            return
        group = self._find_or_create(key.group_id)
        group.put_member(
            replace(
                group.members.get(key.member_id) or ConsumerMember(key.member_id),
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned_partitions=_owned(value.assigned_partitions, value.member_epoch),
                partitions_pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
            )
        )

    def _regular_expression(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is not None:
            self._find_or_create(key.group_id).resolve(
                key.regular_expression,
                ResolvedRegularExpression(frozenset(value.topics), value.version, value.timestamp),
            )
        else:
            group = self._find(key.group_id)
            if group is not None:
                group.resolve(key.regular_expression, None)


def replayed_alone(group_id: str, records: Iterable[CoordinatorRecord]) -> ConsumerGroup:
    """Return the group after the replay of records that are not appended yet."""
    groups: dict[str, Group] = {}
    replays = ConsumerReplay(groups, lambda _: None).replays
    for record in records:
        replays[type(record.key)](record.key, record.value)
    group = groups[group_id]
    assert isinstance(group, ConsumerGroup), "only a consumer group's records were replayed"
    return group


def _target(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {
        one.topic_id: frozenset(one.partitions) for one in value.topic_partitions if one.topic_id is not None
    }


def _owned(topic_partitions: tuple[CurrentTopicPartitions, ...], member_epoch: int) -> OwnedPartitions:
    """Read a member's partitions; without epochs (Kafka before 4.2) they count as assigned in its own."""
    owned = {}
    for one in topic_partitions:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = (max(member_epoch, 0),) * len(one.partitions)
        if one.topic_id is not None:
            owned[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return owned
