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

Order for the caller: fetch from `next_fetch`, pass the answer as `FetchAnswered`, carry the effects out in
order; pass `RecordsAppended` after `AppendToLog`, and `LogTruncated` after either truncation, with what the
log says then. Nothing is fetched while
`next_fetch` is None: the epoch is over, and metadata brings the next.
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


FollowerEvent: TypeAlias = FetchAnswered | RecordsAppended | LogTruncated

# --- effects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Append the batches that came, up to the first of an epoch above `up_to_leader_epoch`.

    A leader that was deposed while it sent may have had newer records under the same file positions.
    """

    up_to_leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log to `offset`, its new end."""

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


FollowerEffect: TypeAlias = (
    AppendToLog
    | TruncateTo
    | TruncateFullyAndStartAt
    | MoveHighWatermark
    | AdvanceLogStartOffset
    | BackOff
    | AwaitMetadata
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
    _epoch_is_over: bool = field(init=False, default=False)
    _leader_high_watermark: Offset | None = field(init=False, default=None)
    _leader_log_start_offset: Offset | None = field(init=False, default=None)

    @property
    def next_fetch(self) -> PartitionFetch | None:
        """The next fetch, or None while only new metadata can help."""
        if self.leader_id is None or self._epoch_is_over:
            return None
        return PartitionFetch(self.leader_epoch, self.log_end_offset, self.last_epoch)

    def handle(self, event: FollowerEvent) -> list[FollowerEffect]:
        """Handle an event; return its effects, in order."""
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

    def _fetch_answered(self, event: FetchAnswered) -> list[FollowerEffect]:
        if (
            event.leader_epoch != self.leader_epoch
            or event.fetch_offset != self.log_end_offset
            or self._epoch_is_over
        ):
            return []
        if event.error_code != ErrorCode.none:
            return self._refused(event)
        if event.diverging_epoch is not None:
            # The offsets in this answer are about a log this one is not yet a prefix of.
            return [
                TruncateTo(
                    truncation_offset(
                        self.history, event.diverging_epoch, self.log_start_offset, self.log_end_offset
                    )
                )
            ]
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
        return [BackOff(event.error_code)]

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
