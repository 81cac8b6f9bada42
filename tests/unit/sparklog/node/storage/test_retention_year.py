"""Retention over a year that passes in seconds: the clock is what the test says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.sparklog.node.storage.batches import START_MS
from tests.unit.sparklog.node.storage.cleanings import clean_round, records_from, state_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CONFIG = LogConfig(
    segment_bytes=20_000,
    segment_ms=3 * DAY_MS,
    segment_jitter_ms=12 * HOUR_MS,
    segment_index_bytes=4096,
    index_interval_bytes=500,
    retention_ms=7 * DAY_MS,
    file_delete_delay_ms=HOUR_MS,
)


def a_year(directory: Path, config: LogConfig, each_day: Callable[[int, Log, Log], None]) -> None:
    """Write a batch every twelve hours for a year, to a leader and to its follower, which is a day behind."""
    leader = Log.open(directory / "leader" / "t-0", config, now_ms=START_MS)
    follower = Log.open(directory / "follower" / "t-0", config, now_ms=START_MS)
    committed = 0
    for hour in range(0, 365 * 24, 12):
        now_ms = START_MS + hour * HOUR_MS
        records = [
            SimpleRecord(b"key-%d" % ((hour // 12 * 5 + i) % 40), b"x" * 100, (), now_ms) for i in range(5)
        ]
        batch = build_batch(records)
        leader.append_as_leader(batch, read_header(batch), 0, now_ms)
        if hour % 24 == 0:
            while follower.log_end_offset < committed:
                result = leader.read(follower.log_end_offset, max_bytes=5000, up_to_offset=committed)
                if result.region is None:
                    break
                follower.append_as_follower(result.region.read(), now_ms)
            high_watermark = min(follower.log_end_offset, leader.log_end_offset)
            leader.delete_old_segments(now_ms, high_watermark)
            start = min(leader.log_start_offset, follower.log_end_offset)
            if start > follower.log_start_offset:
                follower.advance_log_start_offset(start)
            follower.delete_old_segments(now_ms, high_watermark, only_below_start=True)
            for log in (leader, follower):
                log.delete_files_due(now_ms)
            each_day(now_ms, leader, follower)
            committed = leader.log_end_offset
    for log in (leader, follower):
        log.close()


def test_log_that_deletes_holds_a_week_of_records_all_the_year(tmp_path: Path) -> None:
    """No disk fills, no record goes early, no follower begins above its leader."""
    days = 0

    def each_day(now_ms: int, leader: Log, follower: Log) -> None:
        nonlocal days
        days += 1
        assert follower.log_start_offset <= leader.log_start_offset <= follower.log_end_offset
        if days % 20 == 0 or days < 20:
            kept = [record.timestamp_ms or 0 for record in records_from(leader, leader.log_start_offset)]
            assert kept[0] <= max(now_ms - 6 * DAY_MS, START_MS)
            # A segment goes as a whole, with its youngest record, and spans three days at most.
            assert kept[0] >= now_ms - 11 * DAY_MS
            files = len(list(leader.directory.iterdir()))
            assert files <= 40

    a_year(tmp_path, CONFIG, each_day)
    assert days == 365


@pytest.mark.parametrize("deletes", [False, True])
def test_compacted_log_holds_the_last_of_every_key_all_the_year(tmp_path: Path, deletes: bool) -> None:
    """`compact` keeps them for ever, `compact,delete` for a week; neither grows."""
    config = LogConfig(
        segment_bytes=20_000,
        segment_ms=DAY_MS,
        segment_index_bytes=4096,
        retention_ms=7 * DAY_MS,
        file_delete_delay_ms=HOUR_MS,
        deletes=deletes,
        compacts=True,
    )
    days = 0

    def each_day(now_ms: int, leader: Log, follower: Log) -> None:
        nonlocal days
        days += 1
        if days % 15 == 0:
            clean_round(leader, now_ms, high_watermark=follower.log_end_offset)
            leader.delete_files_due(now_ms)
            assert leader.size_bytes <= 40 * 200 + 20 * 5 * 200
            assert len(state_of(records_from(leader, leader.log_start_offset))) == 40
        if days % 40 == 0:
            clean_round(follower, now_ms, high_watermark=follower.log_end_offset)

    a_year(tmp_path, config, each_day)
    assert days == 365
