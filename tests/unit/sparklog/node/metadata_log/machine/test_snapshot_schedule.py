"""When a snapshot is written and what it lets go."""

from collections.abc import Sequence

from sparklog.node.config import SnapshotLimits
from sparklog.node.metadata_log.machine.snapshot_schedule import (
    KeptSnapshot,
    SegmentSize,
    SnapshotSchedule,
    start_after_cleaning,
)
from sparklog.protocol.types import SnapshotId

HOUR_MS = 3_600_000


def kept(end_offset: int, size_bytes: int = 10, last_timestamp_ms: int = 0) -> KeptSnapshot:
    return KeptSnapshot(SnapshotId(end_offset, 1), size_bytes, last_timestamp_ms)


SNAPSHOTS = [kept(100), kept(200), kept(300)]
SEGMENTS = [SegmentSize(0, 50), SegmentSize(150, 50), SegmentSize(250, 50)]


def schedule_of(max_record_bytes: int, max_interval_ms: int | None, now_ms: int) -> SnapshotSchedule:
    limits = SnapshotLimits(
        max_record_bytes=max_record_bytes,
        max_interval_ms=max_interval_ms,
        retention_bytes=None,
        retention_ms=None,
    )
    return SnapshotSchedule(limits, now_ms)


def start(
    retention_bytes: int | None = None,
    retention_ms: int | None = None,
    now_ms: int = 0,
    snapshots: Sequence[KeptSnapshot] = SNAPSHOTS,
) -> int | None:
    limits = SnapshotLimits(
        max_record_bytes=1, max_interval_ms=1, retention_bytes=retention_bytes, retention_ms=retention_ms
    )
    found = start_after_cleaning(snapshots, SEGMENTS, limits, now_ms)
    return None if found is None else found.end_offset


def test_snapshot_is_due_after_so_many_bytes_and_then_again_after_as_many() -> None:
    """What a restart has to replay stays bounded."""
    schedule = schedule_of(1000, None, now_ms=0)
    schedule.replayed(999)
    assert not schedule.is_due(10)
    schedule.replayed(1)
    assert schedule.is_due(10)
    schedule.taken(10)
    assert not schedule.is_due(11)
    schedule.replayed(1000)
    assert schedule.is_due(12)


def test_snapshot_is_due_after_a_time_if_there_is_anything_new() -> None:
    """An idle cluster writes no snapshots of the same state over and over."""
    schedule = schedule_of(1000, HOUR_MS, now_ms=5)
    assert not schedule.is_due(5 + 2 * HOUR_MS)
    schedule.replayed(1)
    assert not schedule.is_due(4 + HOUR_MS)
    assert schedule.is_due(5 + HOUR_MS)


def test_snapshot_is_never_due_by_time_without_an_interval() -> None:
    """Some would rather count bytes alone."""
    schedule = schedule_of(1000, None, now_ms=0)
    schedule.replayed(999)
    assert not schedule.is_due(1000 * HOUR_MS)


def test_log_within_its_limits_keeps_everything() -> None:
    """180 bytes in all: three snapshots, three segments."""
    assert start() is None
    assert start(retention_bytes=180, retention_ms=HOUR_MS, now_ms=HOUR_MS) is None


def test_log_over_its_size_lets_the_oldest_go_until_it_fits() -> None:
    """Without the first snapshot and segment, which lies below the second snapshot: 120 bytes."""
    assert start(retention_bytes=179) == 200
    assert start(retention_bytes=120) == 200
    assert start(retention_bytes=119) == 300


def test_log_over_its_size_keeps_the_newest_snapshot_whatever_its_size() -> None:
    """Without one nobody could ever catch up."""
    assert start(retention_bytes=0) == 300


def test_log_forgets_what_is_over_its_age() -> None:
    """The age is that of the last change in a snapshot, not that of its file."""
    assert start(retention_ms=HOUR_MS, now_ms=HOUR_MS + 1) == 300
    aging = [kept(100, last_timestamp_ms=0), kept(200, last_timestamp_ms=500), kept(300)]
    assert start(retention_ms=HOUR_MS, now_ms=HOUR_MS + 1, snapshots=aging) == 200


def test_log_with_one_snapshot_or_none_forgets_nothing() -> None:
    """What comes before the only snapshot is what is left if that one is damaged."""
    for snapshots in ((), (kept(300),)):
        assert start(retention_bytes=0, retention_ms=0, now_ms=9, snapshots=snapshots) is None
