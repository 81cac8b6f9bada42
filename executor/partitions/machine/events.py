"""The events and effects of a partition leader.

Events are in the past tense, effects in the imperative; `leader` gives their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias
from uuid import UUID

from sparklog.node.metadata.registrations import BrokerRegistration, directory_is_online
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch

# --- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's own log now ends at `log_end_offset`."""

    log_end_offset: Offset
    now_ms: int


@dataclass(frozen=True, slots=True)
class FollowerFetched:
    """A follower asked for `fetch_offset`, and so holds everything below it in this leader's history.

    `broker_epoch` is None when the request carried none (Fetch before version 15).
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None
    fetch_offset: Offset
    log_start_offset: Offset
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed; followers may have fallen behind, a failed proposal may be sent again.

    Also passed once when the leadership begins.
    """

    now_ms: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Effect: ask the controller for `new_isr`; report with `IsrProposalAnswered`.

    A broker epoch of None is one this leader has not heard from the follower itself.
    """

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[tuple[BrokerId, BrokerEpoch | None], ...]


@dataclass(frozen=True, slots=True)
class IsrProposalAnswered:
    """The controller answered `proposal`; the last three fields mean something only without an error."""

    proposal: ProposeIsr
    error_code: ErrorCode
    isr: frozenset[BrokerId]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    now_ms: int


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """The metadata log said so: assignment and ISR as of `partition_epoch`, in the same leader epoch.

    With them comes the min.insync.replicas of the same image. The commits of an ISR depend on both, and an
    old one with a new other may commit records that the controller does not count on.

    `directories` lie parallel to `replicas`; empty if the replicas' directories are unknown.
    `adding_replicas` are those of them that a reassignment under way adds.
    """

    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    isr: frozenset[BrokerId]
    min_insync_replicas: int
    now_ms: int
    directories: tuple[UUID | None, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """The metadata of a registered broker that leaders need."""

    broker_epoch: BrokerEpoch
    fenced: bool = False
    in_controlled_shutdown: bool = False
    log_directories: tuple[UUID, ...] = ()

    @classmethod
    def of(cls, registration: BrokerRegistration) -> Self:
        return cls(
            registration.broker_epoch,
            registration.fenced,
            registration.in_controlled_shutdown,
            registration.log_directories,
        )

    @property
    def may_join_isr(self) -> bool:
        """Whether the controller would take the broker into an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory_id: UUID | None) -> bool:
        """Whether a replica in that directory, by the metadata, can be online (KIP-858)."""
        return directory_is_online(directory_id, self.log_directories)


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The metadata log registered, fenced or unfenced brokers; those missing are not registered."""

    brokers: Mapping[BrokerId, RegisteredBroker]
    now_ms: int


@dataclass(frozen=True, slots=True)
class MinInsyncReplicasChanged:
    min_insync_replicas: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class LogRestarted:
    """The leader's log begins again, empty, at `log_end_offset`: all below is in the partition's tier.

    Only while nothing is served. The end may lie below the high watermark, which moves back to it.
    """

    log_end_offset: Offset
    now_ms: int


LeaderEvent: TypeAlias = (
    Appended
    | FollowerFetched
    | Ticked
    | IsrProposalAnswered
    | PartitionChanged
    | BrokersChanged
    | LogRestarted
    | MinInsyncReplicasChanged
)

# --- effects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Make everything below `high_watermark` visible, and acknowledge the appends that wait for it."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class FailWaitingAppends:
    """The ISR fell below min.insync.replicas: fail the waiting appends, whose producers may retry."""

    isr: frozenset[BrokerId]
    min_insync_replicas: int


LeaderEffect: TypeAlias = AdvanceHighWatermark | ProposeIsr | FailWaitingAppends
