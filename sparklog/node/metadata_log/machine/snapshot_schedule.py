"""Schedule of the metadata log's snapshots, and of the deletion of old records.

Pure, with the time as an argument. Rules, as in Kafka:

- A snapshot is due when `max_record_bytes` of the log have been replayed since the last one, or when
  `max_interval_ms` have passed and at least one record was replayed.
- The log is deleted from its start up to one of its snapshots, at most the newest: one snapshot always stays.
  The oldest one goes while log and snapshots together exceed `retention_bytes`, or while its last record is
  older than `retention_ms`.

Source: KIP-630.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sparklog.node.config import SnapshotLimits
from sparklog.protocol.types import Offset, SnapshotId, TimestampMs


class SnapshotSchedule:
    def __init__(self, limits: SnapshotLimits, now_ms: TimestampMs) -> None:
        self._limits = limits
        self._replayed_bytes = 0
        self._last_snapshot_ms = now_ms

    def replayed(self, size_bytes: int) -> None:
        """Record that `size_bytes` of record batches have been applied to the image."""
        self._replayed_bytes += size_bytes

    def is_due(self, now_ms: TimestampMs) -> bool:
        if not self._replayed_bytes:
            return False
        limits = self._limits
        waited_ms = now_ms - self._last_snapshot_ms
        return self._replayed_bytes >= limits.max_record_bytes or (
            limits.max_interval_ms is not None and waited_ms >= limits.max_interval_ms
        )

    def taken(self, now_ms: TimestampMs) -> None:
        """Restart the schedule: a snapshot of the current image is being written, or was loaded."""
        self._replayed_bytes = 0
        self._last_snapshot_ms = now_ms


class SegmentSize(NamedTuple):
    """A segment of the log, which ends at the next one's base offset."""

    base_offset: Offset
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    snapshot_id: SnapshotId
    size_bytes: int
    last_timestamp_ms: TimestampMs
    """Timestamp of its last log record."""


def start_after_cleaning(
    snapshots: Sequence[KeptSnapshot],
    segments: Sequence[SegmentSize],
    limits: SnapshotLimits,
    now_ms: TimestampMs,
) -> SnapshotId | None:
    """Return the snapshot at which the log has to start; `None` if everything may stay.

    `snapshots` and `segments` are complete and ordered, oldest first. Older snapshots are deleted, and
    segments that lie wholly below, except the active one.
    """
    start: SnapshotId | None = None
    remaining = list(segments)
    total_bytes = sum(snapshot.size_bytes for snapshot in snapshots)
    total_bytes += sum(segment.size_bytes for segment in segments)
    for snapshot, following in pairwise(snapshots):
        over_size = limits.retention_bytes is not None and total_bytes > limits.retention_bytes
        age_ms = now_ms - snapshot.last_timestamp_ms
        over_age = limits.retention_ms is not None and age_ms > limits.retention_ms
        if not (over_size or over_age):
            break
        start = following.snapshot_id
        total_bytes -= snapshot.size_bytes
        while len(remaining) > 1 and remaining[1].base_offset <= start.end_offset:
            total_bytes -= remaining.pop(0).size_bytes
    return start
