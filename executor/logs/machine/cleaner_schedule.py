"""The log that is cleaned next, and the range of offsets to clean.

Pure. Rules kept, as in Kafka (LogCleanerManager):

- The log with the largest dirty ratio comes first, if it exceeds min.cleanable.dirty.ratio or a record has
  waited for max.compaction.lag.ms.
- The active segment is not cleaned, nor records above the last stable offset (so above the high watermark),
  nor a segment with a record younger than min.compaction.lag.ms.
- A checkpoint outside the log is ignored: the log is cleaned from its start on.
- A log that cannot be cleaned is set aside with the reason, and retried, ever later (Kafka: never).

Order for the caller: `choose` among the facts of all compacted logs; clean the result; then `ended` or
`failed`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sparklog.protocol.types import Offset, TimestampMs, TopicPartition

_FIRST_RETRY_MS: Final = 60_000
_LONGEST_RETRY_MS: Final = 3_600_000


class SegmentFacts(NamedTuple):
    base_offset: Offset
    size_bytes: int
    first_timestamp_ms: TimestampMs | None
    """Timestamp of its first batch; None if it has none, or if no rule needs it."""
    largest_timestamp_ms: TimestampMs


class LogFacts(NamedTuple):
    topic_partition: TopicPartition
    segments: Sequence[SegmentFacts]
    """All but the active one."""
    active_base_offset: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    last_stable_offset: Offset
    cleaned_offset: Offset | None
    """The checkpoint of the last cleaning; None for never."""
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int | None


class Cleanable(NamedTuple):
    """The part of a log that can be cleaned."""

    topic_partition: TopicPartition
    first_dirty_offset: Offset
    end_offset: Offset
    dirty_ratio: float
    """Its share of the bytes that have been or can be cleaned."""
    is_due: bool


class SetAside(NamedTuple):
    """The reason why a log is not cleaned, and the time of the next attempt."""

    reason: str
    retry_ms: int
    failures: int


def cleanable_part(log: LogFacts, wall_ms: TimestampMs) -> Cleanable:
    """Return the part of a log that can be cleaned now, and whether to clean it."""
    first_dirty_offset = log.log_start_offset
    if log.cleaned_offset is not None and log.log_start_offset < log.cleaned_offset <= log.log_end_offset:
        first_dirty_offset = log.cleaned_offset
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.active_base_offset]
    end_offset = min(log.last_stable_offset, log.active_base_offset)
    dirty = [
        segment
        for segment, segment_end in zip(log.segments, ends, strict=True)
        if segment_end > first_dirty_offset
    ]
    if log.min_compaction_lag_ms > 0:
        too_young = (
            segment.base_offset
            for segment in dirty
            if segment.largest_timestamp_ms > wall_ms - log.min_compaction_lag_ms
        )
        end_offset = min(end_offset, next(too_young, end_offset))
    end_offset = max(end_offset, first_dirty_offset)
    clean_bytes = dirty_bytes = 0
    for segment, segment_end in zip(log.segments, ends, strict=True):
        if segment_end <= first_dirty_offset:
            clean_bytes += segment.size_bytes
        elif segment_end <= end_offset:
            dirty_bytes += segment.size_bytes
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
    is_overdue = log.max_compaction_lag_ms is not None and any(
        segment.first_timestamp_ms is not None
        and 0 < segment.first_timestamp_ms < wall_ms - log.max_compaction_lag_ms
        for segment in dirty
    )
    is_due = ratio > log.min_cleanable_dirty_ratio or (is_overdue and dirty_bytes > 0)
    return Cleanable(log.topic_partition, first_dirty_offset, end_offset, ratio, is_due)


class CleanerSchedule:
    def __init__(self) -> None:
        self.set_aside: dict[TopicPartition, SetAside] = {}
        """The logs that could not be cleaned."""
        self.highest_dirty_ratio = 0.0
        """Highest ratio among the logs in the last call of `choose`."""
        self._under_way: set[TopicPartition] = set()

    def choose(self, logs: Iterable[LogFacts], wall_ms: TimestampMs, now_ms: int) -> Cleanable | None:
        """Return the log to clean next, and note it as under way; None for none."""
        known = list(logs)
        for gone in self.set_aside.keys() - {log.topic_partition for log in known}:
            del self.set_aside[gone]
        parts = [cleanable_part(log, wall_ms) for log in known if self._may_be_cleaned(log, now_ms)]
        self.highest_dirty_ratio = max((part.dirty_ratio for part in parts), default=0.0)
        due = [part for part in parts if part.is_due]
        chosen = max(due, key=lambda part: part.dirty_ratio, default=None)
        if chosen is not None:
            self._under_way.add(chosen.topic_partition)
        return chosen

    def ended(self, topic_partition: TopicPartition) -> None:
        """Note that a log was cleaned, or has been removed."""
        self._under_way.discard(topic_partition)
        self.set_aside.pop(topic_partition, None)

    def failed(self, topic_partition: TopicPartition, reason: str, now_ms: int) -> SetAside:
        """Set a log aside that could not be cleaned; return until when."""
        self._under_way.discard(topic_partition)
        before = self.set_aside.get(topic_partition)
        failures = 1 if before is None else before.failures + 1
        wait_ms = min(_FIRST_RETRY_MS << min(failures - 1, 10), _LONGEST_RETRY_MS)
        aside = self.set_aside[topic_partition] = SetAside(reason, now_ms + wait_ms, failures)
        return aside

    def _may_be_cleaned(self, log: LogFacts, now_ms: int) -> bool:
        aside = self.set_aside.get(log.topic_partition)
        return log.topic_partition not in self._under_way and (aside is None or aside.retry_ms <= now_ms)
