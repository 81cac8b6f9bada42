"""Interface of a group of any protocol: for commits, fetches and admins.

Source: Kafka's Group and CommitPartitionValidator (group-coordinator).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias
from uuid import UUID

from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorRecord
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TimestampMs


class GroupType(StrEnum):
    """Kafka's names of the group types, as ListGroups filters and reports them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


PartitionValidator: TypeAlias = Callable[[str, UUID | None, int], ErrorCode]
"""(topic, its id, partition) -> error for a commit of this partition, or `ErrorCode.none`."""

CommitValidation: TypeAlias = ErrorCode | PartitionValidator
"""Error for the whole commit; `ErrorCode.none`; or a validator for each partition."""


class Group(Protocol):
    """A group as the machine and the offsets use it.

    Errors are returned as codes: they are ordinary in a group's life.
    """

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> GroupType:
        """Protocol of the group; it selects the `membership.Membership`."""

    @property
    def state_name(self) -> str:
        """State in the responses of ListGroups and of the describing APIs."""

    @property
    def protocol_type(self) -> str | None:
        """Type of its members ("consumer", "connect"); None if they never gave one."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no member: only then may it be deleted, or replaced by one of another type."""

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> CommitValidation: ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check whether this member may fetch offsets; without an epoch it always may."""

    def validate_offset_delete(self) -> ErrorCode:
        """Check whether offsets may be deleted; then, for each topic, `is_subscribed_to`."""

    def validate_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members may read the topic: its offsets neither expire nor can they be deleted."""

    def offset_expiration_base_ms(self, commit_timestamp_ms: TimestampMs) -> TimestampMs | None:
        """Return the start of an offset's retention; None while it has not begun (KIP-211)."""

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """Return the records that delete the group, without its offsets."""
