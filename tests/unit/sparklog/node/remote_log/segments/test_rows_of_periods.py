"""The runs of one day in the batches of a log."""

from pathlib import Path

from sparklog.node.remote_log.segments.log_rows import log_rows_with_batches
from sparklog.node.remote_log.segments.rows_of_periods import period_runs
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch

DAY_MS = 24 * 60 * 60 * 1000
MIDNIGHT_MS = START_MS // DAY_MS * DAY_MS
DAY = MIDNIGHT_MS // DAY_MS


def test_runs_begin_with_batches_and_have_one_day_each(tmp_path: Path) -> None:
    """A follower begins at the end of a tier, where a batch must begin."""
    log = Log.open(tmp_path / "flights-3", LogConfig(), now_ms=MIDNIGHT_MS)
    times_ms = [0, 10, DAY_MS, -1, -DAY_MS, -DAY_MS]
    for number, time_ms in enumerate(times_ms):
        log.append_as_follower(
            make_batch(2, base_offset=2 * number, timestamp_ms=MIDNIGHT_MS + time_ms), MIDNIGHT_MS
        )
    (found,) = log_rows_with_batches(log, 0, log.log_end_offset)
    runs = list(period_runs(found, DAY_MS))
    assert [(run.base_offset, run.period) for run in runs] == [
        (0, DAY),
        (4, DAY + 1),
        (6, None),  # one record before midnight, one at it
        (8, DAY - 1),
    ]
    assert sum(run.size_bytes for run in runs) <= found.rows.nbytes
    log.close()


def test_batch_with_many_records_is_not_divided(tmp_path: Path) -> None:
    """Its rows come together, so that no run begins inside it."""
    log = Log.open(tmp_path / "flights-3", LogConfig(), now_ms=MIDNIGHT_MS)
    log.append_as_follower(make_batch(100_000, timestamp_ms=MIDNIGHT_MS - 50_000), MIDNIGHT_MS)
    (found,) = log_rows_with_batches(log, 0, log.log_end_offset)
    assert [(run.base_offset, run.period) for run in period_runs(found, DAY_MS)] == [(0, None)]
    log.close()


def test_size_of_a_run_is_that_of_its_own_records(tmp_path: Path) -> None:
    """Slices share their group's buffers: by those, short runs would be long ones and cut a segment early."""
    log = Log.open(tmp_path / "flights-3", LogConfig(), now_ms=MIDNIGHT_MS)
    values_bytes = 0
    for number in range(8):
        record = SimpleRecord(value=b"v" * 100_000, timestamp_ms=MIDNIGHT_MS + number * DAY_MS)
        values_bytes += 100_000
        batch = build_batch([record], base_offset=number, leader_epoch=0)
        log.append_as_follower(batch, MIDNIGHT_MS)
    (found,) = log_rows_with_batches(log, 0, log.log_end_offset)
    halves = [found._replace(rows=found.rows.slice(first, 4)) for first in (0, 4)]
    sizes = [run.size_bytes for half in halves for run in period_runs(half, DAY_MS)]
    assert len(sizes) == 8
    assert values_bytes <= sum(sizes) <= values_bytes * 1.01
    log.close()
