"""The events and effects of the tier of one led partition, and the facts of its log.

Events are in the past tense, effects in the imperative; `partition_tier` gives their order. Each effect but
`AdvanceLogStart`, `StopCopying` and `EndTier` is answered by exactly one event, which carries the effect.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.object_store import Version
from sparklog.node.storage.machine.leader_epochs import EpochEntry
from sparklog.protocol.types import LeaderEpoch, Offset

# --- facts ------------------------------------------------------------------------------------------


class LocalSegment(NamedTuple):
    """A segment of the local log; the last one, which is active, ends at the log's end."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The state of the led log; passed with every event, as of that event."""

    log_start_offset: Offset
    local_log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    segments: tuple[LocalSegment, ...]
    leader_epochs: tuple[EpochEntry, ...]
    """From the log start on, not from the local one."""
    log_start_is_guessed: bool = False
    """Whether a recovery without evidence has set the log start: the manifest's counts."""
    cleaned_offset: Offset | None = None
    """Compaction has removed all that it may below it; None for a log that was never cleaned."""
    is_brought_back_in_part: bool = False
    """Whether the log has nothing but a part of the tier: an earlier `AdoptTier` did not end."""

    @property
    def copyable_end_offset(self) -> Offset:
        """Return the exclusive end of the records that may go to the tier."""
        return min(self.high_watermark, self.last_stable_offset)

    @property
    def stands_alone(self) -> bool:
        """Return whether the log knows where it begins without its tier."""
        return self.log_end_offset > 0 and not self.is_brought_back_in_part


class PartitionIdentity(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class TierConfig:
    """The keys of topic and broker that the tier of a partition obeys; None for no limit."""

    segment_bytes: int
    retention_ms: int | None
    retention_bytes: int | None
    max_lag_ms: int
    """sparklog.remote.max.lag.ms."""
    deletes: bool = True
    """Whether `cleanup.policy` contains `delete`."""
    compacts: bool = False
    """Whether `cleanup.policy` contains `compact`."""
    enabled: bool = True
    """remote.storage.enable."""
    copy_disabled: bool = False
    """remote.log.copy.disable."""
    delete_on_disable: bool = False
    """remote.log.delete.on.disable."""
    table_keeps_segments: bool = False
    """Whether segments that the manifest gives up may be files of the topic's table."""
    period_ms: int | None = None
    """The day or hour of which the records of a segment are; `None` if a segment may have any."""


# --- effects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Effect: read the partition's manifest; answer `ManifestRead`, `ManifestMissing` or `StoreFailed`."""


@dataclass(frozen=True, slots=True)
class CopySegment:
    """Effect: write the records in [base_offset, end_offset) of the local log to an object.

    Without aborted records and markers; then write the producers' state at `end_offset`. With `period_ms` the
    piece ends where `PieceCut` says, and the answer has the effect with that end. Answer `SegmentWritten` or
    `StoreFailed`.
    """

    base_offset: Offset
    end_offset: Offset
    segment_name: str
    producers_name: str
    period_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MergeSegments:
    """Effect: write the records of neighbouring remote segments to one object.

    Of each segment the records in its window count. Answer `SegmentWritten` or `StoreFailed`.
    """

    segments: tuple[RemoteSegment, ...]
    segment_name: str


@dataclass(frozen=True, slots=True)
class RewriteSegments:
    """Effect: write the records in the windows of remote segments again, from the cleaned local log.

    That log has fewer of them by now. Answer `SegmentWritten` or `StoreFailed`.
    """

    segments: tuple[RemoteSegment, ...]
    segment_name: str

    @property
    def base_offset(self) -> Offset:
        return self.segments[0].base_offset

    @property
    def end_offset(self) -> Offset:
        return self.segments[-1].end_offset


WriteSegment: TypeAlias = CopySegment | MergeSegments | RewriteSegments


@dataclass(frozen=True, slots=True)
class SwapManifest:
    """Effect: put `manifest` in the place of the one in state `version`; create it if that is None.

    Answer `Swapped`, `SwapStale` (ObjectExistsError, StaleObjectError) or `StoreFailed`.
    """

    manifest: Manifest
    version: Version | None


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Effect: delete these objects; answer `ObjectsDeleted` or `StoreFailed`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListObjects:
    """Effect: list the objects below these paths; answer `ObjectsListed` or `StoreFailed`."""

    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdoptTier:
    """Effect: begin the local log again at the manifest's end; answer `TierAdopted` or `AdoptionFailed`.

    The log takes over the manifest's log start, leader epochs and producers; its high watermark is the
    manifest's end. With `bring_back` the records of the tier become local segments first, for logs that
    cleaner and coordinators read.
    """

    manifest: Manifest
    bring_back: bool


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Effect: raise the log start offset; without an answer."""

    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class StopCopying:
    """Effect: end a copy, merge or rewrite under way, which is answered as ever; without an own answer."""


class EndReason(Enum):
    OWNER_REPLACED = "another application has taken the store"
    LEADER_REPLACED = "a later leader has taken the partition's manifest"
    LEADER_EPOCH_BEHIND = (
        "an earlier application's manifest has a leader epoch that is not below this leader's: stop this "
        "application and start it from the store again, which raises leader epochs by 1,000 each time"
    )


@dataclass(frozen=True, slots=True)
class EndTier:
    """Effect: this machine ends for good; report `reason` as an error. Without an answer."""

    reason: EndReason
    owner_epoch: int
    leader_epoch: LeaderEpoch
    """Of the manifest found."""


StoreEffect: TypeAlias = ReadManifest | WriteSegment | SwapManifest | DeleteObjects | ListObjects
TierEffect: TypeAlias = StoreEffect | AdoptTier | AdvanceLogStart | StopCopying | EndTier

# --- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed or the log changed; the first event of a machine."""


@dataclass(frozen=True, slots=True)
class ManifestRead:
    manifest: Manifest
    version: Version


@dataclass(frozen=True, slots=True)
class ManifestMissing:
    """There is no manifest of this partition."""


@dataclass(frozen=True, slots=True)
class SegmentWritten:
    """The object of `effect` is in the store; `segment` is None if there was no record to write.

    `producers` is the name of the object with the producers' state; None if there are none.
    """

    effect: WriteSegment
    segment: RemoteSegment | None
    producers: str | None = None


@dataclass(frozen=True, slots=True)
class Swapped:
    effect: SwapManifest
    version: Version


@dataclass(frozen=True, slots=True)
class SwapStale:
    """Another writer was faster; nothing was written."""

    effect: SwapManifest


@dataclass(frozen=True, slots=True)
class ObjectsDeleted:
    effect: DeleteObjects


@dataclass(frozen=True, slots=True)
class ObjectsListed:
    """Objects below the prefixes of `effect`; late ones may be missing."""

    effect: ListObjects
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """An effect failed, refused or without a known outcome: a write may have happened, or may happen yet."""

    effect: StoreEffect
    error: str


@dataclass(frozen=True, slots=True)
class TierAdopted:
    """The local log begins at the end of the adopted manifest; the facts passed with this event say so."""

    effect: AdoptTier


@dataclass(frozen=True, slots=True)
class AdoptionFailed:
    effect: AdoptTier
    error: str


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    config: TierConfig


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The cluster stops: copy up to the log's end at once, begin nothing else, end a merge or rewrite."""


@dataclass(frozen=True, slots=True)
class StopRevoked:
    """The cluster goes on after all."""


TierEvent: TypeAlias = (
    Ticked
    | ManifestRead
    | ManifestMissing
    | SegmentWritten
    | Swapped
    | SwapStale
    | ObjectsDeleted
    | ObjectsListed
    | StoreFailed
    | TierAdopted
    | AdoptionFailed
    | ConfigChanged
    | StopRequested
    | StopRevoked
)
