"""What every group is, whatever protocol its members speak: what commits, fetches and admins ask of it.

Source: Kafka's Group and CommitPartitionValidator (group-coordinator).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias
from uuid import UUID

from sparklog.executor.coordinators.machine.decision import CoordinatorRecord
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TimestampMs


class GroupType(StrEnum):
    """Kafka's names of the rebalance protocols, as ListGroups filters by them and tells them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


PartitionValidator: TypeAlias = Callable[[str, UUID | None, int], ErrorCode]
"""(topic, its id, partition) -> why no offset is taken if this is among them, or `ErrorCode.none`."""

CommitValidation: TypeAlias = ErrorCode | PartitionValidator
"""Why nothing of a commit is taken; `ErrorCode.none`; or who is to be asked for each partition."""


class Group(Protocol):
    """One group, as the machine and the offsets know it.

    Errors are returned, as codes: they are the ordinary course of a group's life.
    """

    @property
    def group_id(self) -> str:
        """Its id."""

    @property
    def group_type(self) -> GroupType:
        """Whose protocol it speaks: who decides about it (`membership.Membership`)."""

    @property
    def state_name(self) -> str:
        """Its state as ListGroups and the describing APIs tell it."""

    @property
    def protocol_type(self) -> str | None:
        """What its members are ("consumer", "connect"); None where they never said."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it: only then it may be deleted, and replaced by one of another type."""

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> CommitValidation:
        """Say whether this member may commit."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Say whether this member may read what is committed; who gives no epoch always may."""

    def validate_offset_delete(self) -> ErrorCode:
        """Say whether offsets may be deleted; then, for each topic, `is_subscribed_to`."""

    def validate_delete(self) -> ErrorCode:
        """Say whether the group may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic, or may: its offsets neither expire nor can they be deleted."""

    def offset_expiration_base_ms(self, commit_timestamp_ms: TimestampMs) -> TimestampMs | None:
        """Return since when the retention of an offset runs; None while it does not (KIP-211)."""

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """Return the records that delete the group, without its offsets."""
