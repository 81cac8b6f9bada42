"""Records of `__consumer_offsets`: committed offsets, classic groups, and consumer groups (KIP-848).

Share and streams groups have other types (9 to 15, 17 to 23), and so have offsets before Kafka 0.8.2 (0) and
metadata of topics before 4.1 (4), which this broker never writes; all are skipped like every unknown type.

Source: Kafka's message definitions, group-coordinator/src/main/resources/common/message, as of 4.3.1; the
written versions: GroupCoordinatorRecordHelpers.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from sparklog.executor.coordinators.records.entities import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID_TYPE,
    CoordinatorKey,
    CoordinatorValue,
    NestedEntity,
    in_versions,
    tagged,
)

# --- offsets ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 1
    group: str = field(metadata=STRING)
    topic: str = field(metadata=STRING)
    partition: int = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue(CoordinatorValue):
    """A committed offset. `expire_timestamp` is set by clients before OffsetCommit 5, else -1."""

    __api_key__: ClassVar[int] = 1
    __highest_version__: ClassVar[int] = 4
    __first_flexible_version__: ClassVar[int] = 4
    offset: int = field(metadata=INT64)
    leader_epoch: int = field(metadata=in_versions(INT32, 3), default=-1)
    metadata: str = field(metadata=STRING)
    commit_timestamp: int = field(metadata=INT64)
    expire_timestamp: int = field(metadata=in_versions(INT64, 1, 1), default=-1)
    topic_id: UUID | None = field(metadata=in_versions(tagged(UUID_TYPE, 0), 4), default=None)

    @property
    def written_version(self) -> int:
        """Return 1 with an expire timestamp, which later versions lack, else 4."""
        return 4 if self.expire_timestamp == -1 else 1


# --- classic groups -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 2
    group: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata(NestedEntity):
    member_id: str = field(metadata=STRING)
    group_instance_id: str | None = field(metadata=in_versions(STRING, 3), default=None)
    client_id: str = field(metadata=STRING)
    client_host: str = field(metadata=STRING)
    rebalance_timeout: int = field(metadata=in_versions(INT32, 1), default=-1)
    session_timeout: int = field(metadata=INT32)
    subscription: bytes = field(metadata=BYTES)
    assignment: bytes = field(metadata=BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue(CoordinatorValue):
    __api_key__: ClassVar[int] = 2
    __highest_version__: ClassVar[int] = 4
    __first_flexible_version__: ClassVar[int] = 4
    protocol_type: str = field(metadata=STRING)
    generation: int = field(metadata=INT32)
    protocol: str | None = field(metadata=STRING)
    leader: str | None = field(metadata=STRING)
    current_state_timestamp: int = field(metadata=in_versions(INT64, 2), default=-1)
    members: tuple[MemberMetadata, ...]

    @property
    def written_version(self) -> int:
        """Return 3, the last one that is not flexible."""
        return 3


# --- consumer groups ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 3
    group_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue(CoordinatorValue):
    """Epoch of a group; `metadata_hash` is over its subscribed topics (KIP-1101)."""

    __api_key__: ClassVar[int] = 3
    epoch: int = field(metadata=INT32)
    metadata_hash: int = field(metadata=tagged(INT64, 0), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 5
    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol(NestedEntity):
    """An assignor's name and its subscription metadata, as JoinGroup offers them."""

    name: str = field(metadata=STRING)
    metadata: bytes = field(metadata=BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata(NestedEntity):
    """Fields of a member that uses the classic protocol."""

    session_timeout_ms: int = field(metadata=INT32)
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue(CoordinatorValue):
    """A member's properties as sent in its heartbeats."""

    __api_key__: ClassVar[int] = 5
    instance_id: str | None = field(metadata=STRING)
    rack_id: str | None = field(metadata=STRING)
    client_id: str = field(metadata=STRING)
    client_host: str = field(metadata=STRING)
    subscribed_topic_names: tuple[str, ...] = field(metadata=STRING)
    subscribed_topic_regex: str | None = field(metadata=STRING)
    rebalance_timeout_ms: int = field(metadata=INT32, default=-1)
    server_assignor: str | None = field(metadata=STRING)
    classic_member_metadata: ClassicMemberMetadata | None = field(metadata={"tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 6
    group_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue(CoordinatorValue):
    """Group epoch of the target assignment, and the time of its computation (KIP-1263)."""

    __api_key__: ClassVar[int] = 6
    assignment_epoch: int = field(metadata=INT32)
    assignment_timestamp: int = field(metadata=tagged(INT64, 0), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 7
    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopicPartitions(NestedEntity):
    """Partitions of a topic in a target assignment; Kafka's ...TargetAssignmentMemberValue.TopicPartition."""

    topic_id: UUID | None = field(metadata=UUID_TYPE)
    partitions: tuple[int, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue(CoordinatorValue):
    __api_key__: ClassVar[int] = 7
    topic_partitions: tuple[TargetTopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 8
    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTopicPartitions(NestedEntity):
    """Partitions of a topic that a member owns; Kafka's ...CurrentMemberAssignmentValue.TopicPartitions.

    `assignment_epochs` is parallel to `partitions`: the member epoch at which each was assigned.
    """

    topic_id: UUID | None = field(metadata=UUID_TYPE)
    partitions: tuple[int, ...] = field(metadata=INT32)
    assignment_epochs: tuple[int, ...] | None = field(metadata=tagged(INT32, 0), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue(CoordinatorValue):
    """A member's epoch and state, its partitions and those that it still has to revoke."""

    __api_key__: ClassVar[int] = 8
    member_epoch: int = field(metadata=INT32)
    previous_member_epoch: int = field(metadata=INT32)
    state: int = field(metadata=INT8)
    assigned_partitions: tuple[CurrentTopicPartitions, ...]
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 16
    group_id: str = field(metadata=STRING)
    regular_expression: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue(CoordinatorValue):
    """The topics that match it, as of an image (`version`: its offset), and the time of the match."""

    __api_key__: ClassVar[int] = 16
    topics: tuple[str, ...] = field(metadata=STRING)
    version: int = field(metadata=INT64)
    timestamp: int = field(metadata=INT64)
