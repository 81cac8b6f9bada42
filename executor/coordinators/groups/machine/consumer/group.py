"""One consumer group, as its records have made it; only replay changes it.

A group has three epochs. The group epoch rises whenever the assignment may have to change: with a
subscription, a member, or the topics' metadata. The assignment epoch is the group epoch of the target
assignment. Each member follows with its own (`member`).

A partition has one owner: the member with the partition assigned or pending revocation. `owners` is derived
from the members' records; a target of another member waits until the partition is free.

Source: Kafka's ConsumerGroup and ModernGroup.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.assignors import Assignment
from sparklog.executor.coordinators.groups.machine.consumer import records
from sparklog.executor.coordinators.groups.machine.consumer.member import ConsumerMember, OwnedPartitions
from sparklog.executor.coordinators.groups.machine.group import CommitValidation, GroupType
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import Offset, TimestampMs


def validate_commit(member: ConsumerMember, member_epoch: int) -> CommitValidation:
    """Refuse a member's commit under another epoch than its own or the partition's (KIP-1251).

    A commit may be in flight while the member's epoch rises. So an older epoch is valid for a partition that
    the member has owned since: no other member can have committed in between.
    """
    if member_epoch == member.member_epoch:
        return ErrorCode.none
    refusal = ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
    if member_epoch > member.member_epoch:
        return refusal

    def validate_partition(topic: str, topic_id: UUID | None, partition: int) -> ErrorCode:
        assigned_in = None if topic_id is None else member.assignment_epoch(topic_id, partition)
        return ErrorCode.none if assigned_in is not None and member_epoch >= assigned_in else refusal

    return validate_partition


CONSUMER_PROTOCOL_TYPE: Final = "consumer"
INITIAL_EPOCH: Final = 1
"""Epoch of a group without members so far; the first member makes it 2."""


class ConsumerGroupState(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch,"""
    RECONCILING = "Reconciling"
    """some members do not have their target yet,"""
    STABLE = "Stable"
    """or all members have it."""


class ResolvedRegularExpression(NamedTuple):
    """Topics that a regular expression matches: in the image that ended at `version`, and when."""

    topics: frozenset[str]
    version: Offset
    timestamp_ms: TimestampMs


class TopicSubscribers:
    """Groups of a partition by subscribed topic, for changes of the topic."""

    def __init__(self) -> None:
        self._group_ids: dict[str, dict[str, None]] = {}

    def __getitem__(self, topic: str) -> Collection[str]:
        return self._group_ids.get(topic, ())

    def add(self, topic: str, group_id: str) -> None:
        self._group_ids.setdefault(topic, {})[group_id] = None

    def remove(self, topic: str, group_id: str) -> None:
        group_ids = self._group_ids.get(topic, {})
        group_ids.pop(group_id, None)
        if not group_ids:
            self._group_ids.pop(topic, None)


class ConsumerGroup:
    group_type: Final = GroupType.CONSUMER
    protocol_type: Final[str | None] = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, subscribers: "TopicSubscribers | None" = None) -> None:
        self.group_id = group_id
        self._subscribers = TopicSubscribers() if subscribers is None else subscribers
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms: TimestampMs = 0
        """Time of the target assignment; 0 before the first."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_member_ids: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.owners: dict[UUID, dict[int, str]] = {}
        self.resolved: dict[str, ResolvedRegularExpression] = {}
        self.regex_subscribers: Counter[str] = Counter()
        self.topic_subscriptions: Counter[str] = Counter()
        """Number of members that name a topic plus regular expressions that match it, by topic name."""
        self.classic_member_count = 0
        self._server_assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        # Volatile:
        self.checked_in_epoch: int | None = None
        """Group epoch of the last check of the metadata; None if they have to be checked."""

    # ---- what every group is asked (group.Group) -------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """Progress of the members towards the group epoch; computed on each access."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return ConsumerGroupState.STABLE if reconciled else ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return str(self.state)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> CommitValidation:
        """Check member and epoch of a commit; without a member it is valid while the group is empty."""
        if generation_or_member_epoch < 0 and self.is_empty:
            return ErrorCode.none
        says_nothing = generation_or_member_epoch == -1 and not member_id and group_instance_id is None
        if is_transactional and says_nothing:
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not is_transactional and member.classic is None and api_version < 9:
            return ErrorCode.unsupported_version
        return validate_commit(member, generation_or_member_epoch)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check member and epoch of a fetch; a request with neither is valid."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.none
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        if member.member_epoch == member_epoch:
            return ErrorCode.none
        return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation

    def validate_offset_delete(self) -> ErrorCode:
        """Accept: offsets of topics without a subscriber may always be deleted."""
        return ErrorCode.none

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.none if self.is_empty else ErrorCode.non_empty_group

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to it, by name or by a regular expression."""
        return topic in self.topic_subscriptions

    def offset_expiration_base_ms(self, commit_timestamp_ms: TimestampMs) -> TimestampMs | None:
        """Retention runs from the commit; offsets of subscribed topics do not expire."""
        return commit_timestamp_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return records.group_tombstones(self.group_id, tuple(self.members), tuple(self.resolved))

    # ---- what decisions ask ----------------------------------------------------------------------------

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self.static_member_ids.get(instance_id, ""))

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        return self.owners.get(topic_id, {}).get(partition)

    def preferred_assignor(
        self, default: str, before: ConsumerMember | None = None, after: ConsumerMember | None = None
    ) -> str:
        """Return the assignor that most members name, once `before` has become `after`."""
        counts = Counter(self._server_assignors)
        if before is not None and before.server_assignor is not None:
            counts[before.server_assignor] -= 1
        if after is not None and after.server_assignor is not None:
            counts[after.server_assignor] += 1
        named = sorted((-count, name) for name, count in counts.items() if count > 0)
        return named[0][1] if named else default

    def subscribed_topics(
        self,
        before: Iterable[ConsumerMember] = (),
        after: Iterable[ConsumerMember] = (),
        *,
        forgotten: Collection[str] = (),
    ) -> set[str]:
        """Return all topics, once `before` have become `after` and regular expressions are dropped."""
        changes: Counter[str] = Counter()
        for member in before:
            changes.subtract(member.subscribed_topic_names)
        for member in after:
            changes.update(member.subscribed_topic_names)
        for regex in forgotten:
            if regex in self.resolved:
                changes.subtract(self.resolved[regex].topics)
        topics = set(self.topic_subscriptions)
        for topic, change in changes.items():
            if self.topic_subscriptions[topic] + change > 0:
                topics.add(topic)
            else:
                topics.discard(topic)
        return topics

    def member_topics(self, member: ConsumerMember) -> frozenset[str]:
        return member_topics(member, self.resolved)

    def supports_classic_protocols(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether a member of the classic protocol has an assignor in common with all others of its kind."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self._classic_protocols[name] == self.classic_member_count for name in protocol_names
        )

    def all_speak_classic_except(self, members: Collection[ConsumerMember]) -> bool:
        classic = sum(member.classic is not None for member in members)
        return self.classic_member_count - classic == len(self.members) - len(members)

    # ---- replaying -------------------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(member, 1)
        if before is not None:
            self._count(before, -1)
        if before is None or not _owns_the_same(before, member):
            if before is not None:
                self._disown(before)
            for topic_id, partition in _owned_by(member):
                self.owners.setdefault(topic_id, {})[partition] = member.member_id
        if member.instance_id is not None:
            self.static_member_ids[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self._disown(member)
            if member.instance_id is not None and self.static_member_ids.get(member.instance_id) == member_id:
                del self.static_member_ids[member.instance_id]

    def resolve(self, regex: str, resolved: ResolvedRegularExpression | None) -> None:
        """Set the topics of a regular expression; None removes it."""
        before = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
            self._count_topics(resolved.topics, 1)
        if before is not None:
            self._count_topics(before.topics, -1)

    def unsubscribe(self) -> None:
        """Remove a deleted group from the subscribers of its topics."""
        for topic in self.topic_subscriptions:
            self._subscribers.remove(topic, self.group_id)

    def _count(self, member: ConsumerMember, change: int) -> None:
        self._count_topics(member.subscribed_topic_names, change)
        if member.subscribed_topic_regex:
            _add(self.regex_subscribers, (member.subscribed_topic_regex,), change)
        if member.server_assignor is not None:
            _add(self._server_assignors, (member.server_assignor,), change)
        if member.classic is not None:
            self.classic_member_count += change
            names = [protocol.name for protocol in member.classic.supported_protocols]
            _add(self._classic_protocols, names, change)

    def _count_topics(self, topics: Iterable[str], change: int) -> None:
        for topic in topics:
            if change > 0 and topic not in self.topic_subscriptions:
                self._subscribers.add(topic, self.group_id)
            _add(self.topic_subscriptions, (topic,), change)
            if topic not in self.topic_subscriptions:
                self._subscribers.remove(topic, self.group_id)

    def _disown(self, member: ConsumerMember) -> None:
        for topic_id, partition in _owned_by(member):
            owners = self.owners.get(topic_id, {})
            # A replaced member's successor may have been replayed already.
            if owners.get(partition) == member.member_id:
                del owners[partition]
                if not owners:
                    del self.owners[topic_id]


def member_topics(
    member: ConsumerMember, resolved: Mapping[str, ResolvedRegularExpression]
) -> frozenset[str]:
    """Return the topics a member subscribes to; an unresolved regular expression adds none."""
    meant = resolved.get(member.subscribed_topic_regex)
    if meant is None:
        return member.subscribed_topic_names
    return member.subscribed_topic_names | meant.topics if member.subscribed_topic_names else meant.topics


def _owns_the_same(before: ConsumerMember, after: ConsumerMember) -> bool:
    return (
        before.assigned_partitions is after.assigned_partitions
        and before.partitions_pending_revocation is after.partitions_pending_revocation
    )


def _owned_by(member: ConsumerMember) -> Iterator[tuple[UUID, int]]:
    owned: OwnedPartitions
    for owned in (member.assigned_partitions, member.partitions_pending_revocation):
        for topic_id, partitions in owned.items():
            for partition in partitions:
                yield topic_id, partition


def _add(counts: Counter[str], names: Iterable[str], change: int) -> None:
    """Change the counts of names; counts of zero are removed."""
    for name in names:
        count = counts[name] + change
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)
