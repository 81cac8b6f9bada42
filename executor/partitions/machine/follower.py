"""Following the leader of one partition in one leader epoch.

Pure: events in, effects out. A `PartitionFollower` lives as long as its leader epoch; the next epoch is
a new object over the same log.

Rules it keeps
- Its log is cut only where a leader's epochs say that the two part (KIP-101, 279, 320, 595), never at a
  high watermark: each fetch names the epoch of the last record, the leader answers with the epoch and
  end offset where they diverge, and the log is cut to the smaller of that end and its own end of that
  epoch. Should the epoch be unknown here, the next fetch repeats the question one epoch further down.
- Its high watermark is what the leader says, but not above its own end. It may move back by truncation.
- Its log start offset follows the leader's.
- An answer that belongs to another epoch or another offset than asked for now is ignored.
- Records that the leader has in the tier alone are not fetched (KIP-405): the log begins again where the
  tier ends, with the tier's epochs and producers. So does a log without any record if the leader has
  records in the tier (KIP-1023), whether it has them locally or not. Of the tier's end the producers are
  known, of an offset before it they are not: that is why the end counts, and not the leader's local start.

Order for the caller: fetch from `next_fetch`, pass the answer as `FetchAnswered`, carry the effects out in
order; pass `RecordsAppended` after `AppendToLog`, and `LogTruncated` after either truncation, with what the
log says then; `LeaderOffsetsKnown` after `AskLeaderOffsets`, `TierBuilt` after `BuildFromTier`, or
`TierFailed` after either of these. Nothing is fetched while `next_fetch` is None: the epoch is over, and
metadata brings the next, or the log is built.

Source: KIP-405, KIP-1023; Kafka's AbstractFetcherThread and TierStateMachine.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from sparklog.node.storage.machine.epoch_checks import LeaderEpochHistory, truncation_offset
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset

# --- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """The leader answered the fetch made at `fetch_offset` in `leader_epoch`.

    `high_watermark` and `log_start_offset` are the leader's (None: unknown); `has_records` says whether
    record batches came with it.
    """

    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    error_code: ErrorCode
    high_watermark: Offset | None
    log_start_offset: Offset | None
    diverging_epoch: tuple[LeaderEpoch, Offset] | None
    has_records: bool


@dataclass(frozen=True, slots=True)
class RecordsAppended:
    """The log has the records of the last answer and ends at `log_end_offset`."""

    log_end_offset: Offset
    last_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The log was truncated: it now has `log_start_offset` to `log_end_offset`."""

    log_start_offset: Offset
    log_end_offset: Offset
    last_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class LeaderOffsetsKnown:
    """The leader's local log starts at `local_log_start_offset`; its tier ends at `tiered_end_offset`.

    None: the leader knows of nothing in its tier.
    """

    local_log_start_offset: Offset
    tiered_end_offset: Offset | None


@dataclass(frozen=True, slots=True)
class TierBuilt:
    """The log was begun again: it has no records, and all in [log_start_offset, log_end_offset) is tiered."""

    log_start_offset: Offset
    log_end_offset: Offset
    last_epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True)
class TierFailed:
    """The leader did not answer, or the tier cannot be read or used; the log is unchanged."""

    error_code: ErrorCode


FollowerEvent: TypeAlias = (
    FetchAnswered | RecordsAppended | LogTruncated | LeaderOffsetsKnown | TierBuilt | TierFailed
)

# --- effects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Append the batches that came, up to the first of an epoch above `up_to_leader_epoch`.

    A leader that was deposed while it sent may have had newer records under the same file positions.
    """

    up_to_leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class TruncateTo:
    offset: Offset


@dataclass(frozen=True, slots=True)
class TruncateFullyAndStartAt:
    """Delete the whole log and begin again at `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class MoveHighWatermark:
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class AdvanceLogStartOffset:
    """Delete records below `log_start_offset`, as the leader has."""

    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class BackOff:
    """Leave this partition out of the fetches for a while: the leader answered `error_code`."""

    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class AwaitMetadata:
    """Stop fetching: the leader is in a newer epoch than this follower's metadata."""

    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class AskLeaderOffsets:
    """Ask the leader where its local log starts and where its tier ends."""


@dataclass(frozen=True, slots=True)
class BuildFromTier:
    """Read the partition's manifest and producers, and begin the log again at the manifest's end.

    The manifest is of no use if it ends below `least_end_offset`: its leader cannot have deleted more.
    """

    log_start_offset: Offset
    least_end_offset: Offset


FollowerEffect: TypeAlias = (
    AppendToLog
    | TruncateTo
    | TruncateFullyAndStartAt
    | MoveHighWatermark
    | AdvanceLogStartOffset
    | BackOff
    | AwaitMetadata
    | AskLeaderOffsets
    | BuildFromTier
)


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """A fetch from `offset` on, for a log whose last record has the leader epoch `last_fetched_epoch`."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_fetched_epoch: LeaderEpoch | None


@dataclass(slots=True)
class PartitionFollower:
    """A follower of `leader_id` in `leader_epoch`; there may be no leader to follow."""

    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch
    history: LeaderEpochHistory
    log_start_offset: Offset
    log_end_offset: Offset
    last_epoch: LeaderEpoch | None
    high_watermark: Offset
    local_log_start_offset: Offset = 0
    """Where the files of the log start; set by the caller when local retention has moved it."""
    begins_at_tiered_end: bool = False
    """Whether a log without records begins at the tier's end, though its leader has older ones locally."""
    _epoch_is_over: bool = field(init=False, default=False)
    _leader_high_watermark: Offset | None = field(init=False, default=None)
    _leader_log_start_offset: Offset | None = field(init=False, default=None)
    _is_building: bool = field(init=False, default=False)
    """From `AskLeaderOffsets` until the log was built, or not."""
    _needs_tier: bool = field(init=False, default=False)
    """Whether the leader cannot send what comes next: it is in the tier alone."""

    @property
    def next_fetch(self) -> PartitionFetch | None:
        """The next fetch, or None while only new metadata can help."""
        if self.leader_id is None or self._epoch_is_over or self._is_building:
            return None
        return PartitionFetch(self.leader_epoch, self.log_end_offset, self.last_epoch)

    def handle(self, event: FollowerEvent) -> list[FollowerEffect]:
        match event:
            case FetchAnswered():
                return self._fetch_answered(event)
            case RecordsAppended():
                self.log_end_offset = event.log_end_offset
                self.last_epoch = event.last_epoch
                return self._follow_offsets()
            case LogTruncated():
                self.log_start_offset = event.log_start_offset
                self.log_end_offset = event.log_end_offset
                self.last_epoch = event.last_epoch
                return self._lower_high_watermark(event.log_end_offset)
            case LeaderOffsetsKnown():
                return self._leader_offsets_known(event)
            case TierBuilt():
                self._is_building = False
                self.log_start_offset = event.log_start_offset
                self.local_log_start_offset = self.log_end_offset = event.log_end_offset
                self.last_epoch = event.last_epoch
                # The tier has committed records only.
                self.high_watermark = event.log_end_offset
                return [MoveHighWatermark(event.log_end_offset)]
            case TierFailed():
                self._is_building = False
                return [BackOff(event.error_code)]

    def _fetch_answered(self, event: FetchAnswered) -> list[FollowerEffect]:
        if (
            event.leader_epoch != self.leader_epoch
            or event.fetch_offset != self.log_end_offset
            or self._epoch_is_over
            or self._is_building
        ):
            return []
        if event.error_code != ErrorCode.none:
            return self._refused(event)
        if event.diverging_epoch is not None:
            # The offsets in this answer are about a log this one is not yet a prefix of.
            offset = truncation_offset(
                self.history, event.diverging_epoch, self.log_start_offset, self.log_end_offset
            )
            if self.log_start_offset <= offset < self.local_log_start_offset:
                # The producers of the records that stay are not known here.
                return self._ask_leader_offsets(event.log_start_offset, needs_tier=True)
            return [TruncateTo(offset)]
        if self._begins_again_at_tiered_end(event):
            self.begins_at_tiered_end = False
            return self._ask_leader_offsets(event.log_start_offset, needs_tier=False)
        self._leader_high_watermark = event.high_watermark
        self._leader_log_start_offset = event.log_start_offset
        if event.has_records:
            return [AppendToLog(self.leader_epoch)]
        return self._follow_offsets()

    def _refused(self, event: FetchAnswered) -> list[FollowerEffect]:
        if event.error_code == ErrorCode.fenced_leader_epoch:
            self._epoch_is_over = True
            return [AwaitMetadata(event.error_code)]
        if event.error_code == ErrorCode.offset_out_of_range and event.log_start_offset is not None:
            # Nothing here continues the leader's log: its start moved past our end, or an unclean
            # election put a shorter log in charge. The leader has all that is committed.
            return [TruncateFullyAndStartAt(event.log_start_offset)]
        if event.error_code == ErrorCode.offset_moved_to_tiered_storage:
            return self._ask_leader_offsets(event.log_start_offset, needs_tier=True)
        return [BackOff(event.error_code)]

    def _begins_again_at_tiered_end(self, event: FetchAnswered) -> bool:
        """Whether this log has nothing, and committed records are missing in it."""
        return self.begins_at_tiered_end and self.log_start_offset == self.log_end_offset < (
            event.high_watermark or 0
        )

    def _ask_leader_offsets(
        self, log_start_offset: Offset | None, *, needs_tier: bool
    ) -> list[FollowerEffect]:
        if log_start_offset is None:
            return [BackOff(ErrorCode.offset_moved_to_tiered_storage)]
        self._leader_log_start_offset = log_start_offset
        self._needs_tier = needs_tier
        self._is_building = True
        return [AskLeaderOffsets()]

    def _leader_offsets_known(self, event: LeaderOffsetsKnown) -> list[FollowerEffect]:
        start = self._leader_log_start_offset
        assert start is not None, "the offsets were asked for with the leader's log start offset"
        least_end_offset = max(event.local_log_start_offset, start)
        if self._needs_tier:
            return [BuildFromTier(start, least_end_offset)]
        tiered_end_offset = event.tiered_end_offset or 0
        if tiered_end_offset <= self.log_end_offset:
            # Nothing is in the tier yet: fetch all of it.
            self._is_building = False
            return []
        return [BuildFromTier(start, max(least_end_offset, tiered_end_offset))]

    def _lower_high_watermark(self, log_end_offset: Offset) -> list[FollowerEffect]:
        if self.high_watermark <= log_end_offset:
            return []
        self.high_watermark = log_end_offset
        return [MoveHighWatermark(log_end_offset)]

    def _follow_offsets(self) -> list[FollowerEffect]:
        effects: list[FollowerEffect] = []
        if self._leader_high_watermark is not None:
            high_watermark = min(self._leader_high_watermark, self.log_end_offset)
            if high_watermark > self.high_watermark:
                self.high_watermark = high_watermark
                effects.append(MoveHighWatermark(high_watermark))
        start = self._leader_log_start_offset
        if start is not None and self.log_start_offset < start <= self.high_watermark:
            self.log_start_offset = start
            effects.append(AdvanceLogStartOffset(start))
        return effects
