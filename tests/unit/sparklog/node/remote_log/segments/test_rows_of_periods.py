"""The runs of one day in the batches of a log."""

from pathlib import Path

from sparklog.node.remote_log.segments.log_rows import log_rows_with_batches
from sparklog.node.remote_log.segments.rows_of_periods import period_runs
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
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
