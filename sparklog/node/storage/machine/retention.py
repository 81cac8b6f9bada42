"""Retention: which of a log's oldest segments are deleted, by age, by the log's size, by its start offset.

Pure. Rules, as in Kafka: segments are deleted from the oldest on, without a gap, and none that reaches above
the high watermark; the active one too if it is over-age or over-size (the log then rolls first). Of a tiered
log local retention decides, on leader and followers alike, and only about records that the tier has.
"""

from collections.abc import Sequence
from typing import Protocol

from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.types import Offset, TimestampMs


class RetainedSegment(Protocol):
    @property
    def base_offset(self) -> Offset: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp(self) -> TimestampMs:
        """Return the largest timestamp of its records, or what stands for that of an empty one."""


def count_deletable(
    segments: Sequence[RetainedSegment],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    log_end_offset: Offset,
    high_watermark: Offset,
    now_ms: TimestampMs,
    only_below_start: bool = False,
    tiered_end: Offset | None = None,
) -> int:
    """Return how many of the first `segments` have to be deleted.

    `only_below_start` is for followers, which must not decide by the age and size of the whole log. All below
    `tiered_end` is in the tier; None if nothing is, or the tier is not known.
    """
    deletable_end = high_watermark
    decides = config.deletes and not only_below_start
    retention_ms, retention_bytes = config.retention_ms, config.retention_bytes
    if config.is_cut_by_local_retention:
        decides = tiered_end is not None
        deletable_end = min(high_watermark, tiered_end or 0)
        retention_ms, retention_bytes = config.local_retention_ms, config.local_retention_bytes
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    excess_bytes = 0
    if retention_bytes is not None:
        excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for count, (segment, end_offset) in enumerate(zip(segments, ends, strict=True)):
        is_active = count == len(segments) - 1
        if (is_active and segment.size_bytes == 0) or end_offset > high_watermark:
            return count
        below_start = not is_active and end_offset <= log_start_offset
        decided = decides and end_offset <= deletable_end
        # An empty segment, after a cleaning, counts as over-size: it must not hold up those behind it.
        over_size = decided and excess_bytes > 0 and segment.size_bytes <= excess_bytes
        over_age = (
            decided and retention_ms is not None and now_ms - segment.largest_timestamp() > retention_ms
        )
        if not (below_start or over_size or over_age):
            return count
        excess_bytes -= segment.size_bytes
    return len(segments)
