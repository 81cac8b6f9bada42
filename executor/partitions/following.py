"""Appending a leader's fetch responses to a log, as the follower machine decides.

The machine decides what is cut, appended and made visible; here it is done to the log, and what the log
says afterwards goes back to the machine.
"""

import logging

from sparklog.executor.partitions.machine.follower import (
    AdvanceLogStartOffset,
    AppendToLog,
    AwaitMetadata,
    BackOff,
    FetchAnswered,
    FollowerEffect,
    LogTruncated,
    MoveHighWatermark,
    PartitionFetch,
    PartitionFollower,
    RecordsAppended,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from sparklog.node.storage.log.log import Log
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TimestampMs

logger = logging.getLogger(__name__)


class Following:
    """A log, and the machine that follows one leader in one leader epoch."""

    def __init__(
        self, log: Log, leader_id: BrokerId | None, leader_epoch: LeaderEpoch, high_watermark: Offset
    ) -> None:
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
    ) -> BackOff | AwaitMetadata | None:
        """Apply a fetch response and append its `records`; return the effect for the fetcher, if any.

        `now_ms` is the wall clock's, when the records are appended.

        Raises:
            KafkaError: what was fetched is no continuation of the log, or kafka_storage_error.
        """
        return self._carry_out(self._follower.handle(answered), records, now_ms)

    def _carry_out(
        self, effects: list[FollowerEffect], records: bytes | memoryview, now_ms: TimestampMs
    ) -> BackOff | AwaitMetadata | None:
        log = self._log
        advice: BackOff | AwaitMetadata | None = None
        for effect in effects:
            match effect:
                case AppendToLog():
                    log.append_as_follower(_up_to_epoch(records, effect.up_to_leader_epoch), now_ms)
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
                case BackOff() | AwaitMetadata():
                    advice = effect
        return advice

    def _truncated(self, now_ms: TimestampMs) -> None:
        log = self._log
        after = LogTruncated(log.log_start_offset, log.log_end_offset, self._last_epoch())
        self._carry_out(self._follower.handle(after), b"", now_ms)

    def _last_epoch(self) -> LeaderEpoch | None:
        log = self._log
        return log.epochs.latest if log.log_end_offset > log.log_start_offset else None


def _up_to_epoch(records: bytes | memoryview, leader_epoch: LeaderEpoch) -> bytes | memoryview:
    """Return the batches before the first one of an epoch above `leader_epoch`."""
    for position, header in iterate_headers(records):
        if header.partition_leader_epoch > leader_epoch:
            return memoryview(records)[:position]
    return records
