"""Appending a leader's fetch responses to a log, as the follower machine decides.

The machine decides what is cut, appended and made visible; here it is done to the log, and what the log
says afterwards goes back to the machine.
"""

import logging
from typing import TypeAlias

from sparklog.executor.partitions.machine.follower import (
    AdvanceLogStartOffset,
    AppendToLog,
    AskLeaderOffsets,
    AwaitMetadata,
    BackOff,
    BuildFromTier,
    FetchAnswered,
    FollowerEffect,
    LeaderOffsetsKnown,
    LogTruncated,
    MoveHighWatermark,
    PartitionFetch,
    PartitionFollower,
    RecordsAppended,
    TierBuilt,
    TierFailed,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TimestampMs

logger = logging.getLogger(__name__)

FetcherAdvice: TypeAlias = BackOff | AwaitMetadata | AskLeaderOffsets
"""The effects of a fetch's answer that are the fetcher's."""


class Following:
    """A log, and the machine that follows one leader in one leader epoch."""

    def __init__(
        self,
        log: Log,
        leader_id: BrokerId | None,
        leader_epoch: LeaderEpoch,
        high_watermark: Offset,
        *,
        begins_at_tiered_end: bool = False,
    ) -> None:
        """Follow; `begins_at_tiered_end` is follower.fetch.last.tiered.offset.enable."""
        self.leader_id = leader_id
        self.high_watermark = high_watermark
        self._log = log
        self._follower = PartitionFollower(
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            history=log,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_epoch=self._last_epoch(),
            high_watermark=high_watermark,
            local_log_start_offset=log.local_log_start_offset,
            begins_at_tiered_end=begins_at_tiered_end and log.config.is_cut_by_local_retention,
        )

    @property
    def next_fetch(self) -> PartitionFetch | None:
        """The next fetch; None until there is new metadata, or the log's producers are loaded."""
        return None if self._log.loading is not None else self._follower.next_fetch

    def take_log(self, log: Log) -> None:
        """Replace the log by another one with the same content."""
        self._log = self._follower.history = log

    def take(
        self, answered: FetchAnswered, records: bytes | memoryview, now_ms: TimestampMs
    ) -> FetcherAdvice | None:
        """Apply a fetch response and append its `records`; return the effect for the fetcher, if any.

        `now_ms` is the wall clock's, when the records are appended.

        Raises:
            KafkaError: what was fetched is no continuation of the log, or kafka_storage_error.
        """
        self._follower.local_log_start_offset = self._log.local_log_start_offset
        return self._carry_out(self._follower.handle(answered), records, now_ms)

    def leader_offsets_known(self, known: LeaderOffsetsKnown) -> BuildFromTier | None:
        """Return what to build from the tier; None if the leader's records are to be fetched after all."""
        for effect in self._follower.handle(known):
            if isinstance(effect, BuildFromTier):
                return effect
        return None

    def build(
        self, wanted: BuildFromTier, manifest: Manifest, producers: bytes | None, now_ms: TimestampMs
    ) -> None:
        """Begin the log again at the end of its tier.

        Raises:
            KafkaError: offset_moved_to_tiered_storage: the manifest ends too early; what `Log.adopt` raises.
        """
        log, end_offset = self._log, manifest.end_offset
        if end_offset < wanted.least_end_offset:
            raise KafkaError(
                ErrorCode.offset_moved_to_tiered_storage,
                f"{log.topic_partition}: the tier ends at {end_offset}, below {wanted.least_end_offset}",
            )
        log.adopt(
            leader_epochs=manifest.leader_epochs,
            producers=producers,
            log_start_offset=wanted.log_start_offset,
            end_offset=end_offset,
            now_ms=now_ms,
        )
        logger.info(
            "%s: begins at %d, records from %d on are in the tier",
            log.topic_partition,
            log.log_end_offset,
            log.log_start_offset,
        )
        built = TierBuilt(log.log_start_offset, log.log_end_offset, self._last_epoch())
        self._carry_out(self._follower.handle(built), b"", now_ms)

    def tier_failed(self, error_code: ErrorCode) -> None:
        """Go on fetching; the caller pauses before."""
        self._follower.handle(TierFailed(error_code))

    def _carry_out(
        self, effects: list[FollowerEffect], records: bytes | memoryview, now_ms: TimestampMs
    ) -> FetcherAdvice | None:
        log = self._log
        advice: FetcherAdvice | None = None
        for effect in effects:
            match effect:
                case AppendToLog():
                    self._check_end()
                    log.append_as_follower(records, now_ms, up_to_leader_epoch=effect.up_to_leader_epoch)
                    appended = RecordsAppended(log.log_end_offset, self._last_epoch())
                    self._carry_out(self._follower.handle(appended), b"", now_ms)
                case MoveHighWatermark():
                    self.high_watermark = effect.high_watermark
                case AdvanceLogStartOffset():
                    log.advance_log_start_offset(effect.log_start_offset)
                case TruncateTo():
                    before = log.log_end_offset
                    log.truncate_to(effect.offset)
                    logger.info(
                        "%s: log truncated from %d to %d by the leader's epochs",
                        log.topic_partition,
                        before,
                        log.log_end_offset,
                    )
                    self._truncated(now_ms)
                case TruncateFullyAndStartAt():
                    logger.warning(
                        "%s: [%d, %d) does not continue the leader's log, starting again at its start %d",
                        log.topic_partition,
                        log.log_start_offset,
                        log.log_end_offset,
                        effect.offset,
                    )
                    log.truncate_fully_and_start_at(effect.offset)
                    self.high_watermark = effect.offset
                    self._truncated(now_ms)
                case BackOff() | AwaitMetadata() | AskLeaderOffsets():
                    advice = effect
        return advice

    def _check_end(self) -> None:
        """Check that the records that were fetched follow on, as Kafka's ReplicaFetcherThread does.

        Raises:
            KafkaError: offset_out_of_range: the log was changed meanwhile, and would have a hole.
        """
        log, expected = self._log, self._follower.log_end_offset
        if log.log_end_offset != expected:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{log.topic_partition}: the log ends at {log.log_end_offset}, fetched is from {expected} on",
            )

    def _truncated(self, now_ms: TimestampMs) -> None:
        log = self._log
        after = LogTruncated(log.log_start_offset, log.log_end_offset, self._last_epoch())
        self._carry_out(self._follower.handle(after), b"", now_ms)

    def _last_epoch(self) -> LeaderEpoch | None:
        log = self._log
        return log.epochs.latest if log.log_end_offset > log.log_start_offset else None
