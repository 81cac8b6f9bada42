"""How long a log remembers its producers: by when it heard from them, whatever time their records tell of."""

from pathlib import Path

import pytest

from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.records.batch import read_header
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch

DAY_MS = 86_400_000
CONFIG = LogConfig(segment_bytes=1500, producer_id_expiration_ms=DAY_MS)
EVENT_TIMES_MS = [0, 1_357_000_000_000, START_MS, 4_102_444_800_000]
"""1970, the flights of the demo, the wall clock's, 2100."""


def reopened(log: Log, stop: PreviousStop, now_ms: int) -> Log:
    """Stop as `stop` says and start again."""
    log.close(clean=stop is PreviousStop.CLEAN)
    recovery_point = log.recovery_point
    return Log.open(log.directory, CONFIG, recovery_point=recovery_point, stop=stop, now_ms=now_ms)


@pytest.mark.parametrize("event_ms", EVENT_TIMES_MS)
@pytest.mark.parametrize("stop", PreviousStop)
@pytest.mark.parametrize("as_follower", [False, True])
def test_retry_of_records_of_any_time_is_not_appended_twice(
    tmp_path: Path, event_ms: int, stop: PreviousStop, as_follower: bool
) -> None:
    """Retention passes, kills and restarts come whenever they like; a producer's retry may follow each."""
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS)
    now_ms = START_MS

    def batch(number: int) -> bytes:
        return make_batch(
            2,
            base_offset=2 * number,
            value_bytes=200,
            timestamp_ms=event_ms + number,
            producer_id=7,
            producer_epoch=0,
            base_sequence=2 * number,
        )

    def retry_is_recognised(number: int) -> bool:
        again = batch(number)
        return log.append_as_leader(again, read_header(again), 0, now_ms).duplicate

    for number in range(12):
        now_ms += 1000
        if as_follower:
            log.append_as_follower(batch(number), now_ms)
        else:
            log.append_as_leader(batch(number), read_header(batch(number)), 0, now_ms)
    assert len(log.segments.all) > 2
    now_ms += DAY_MS - 1
    assert sum(log.remove_expired_producers(now_ms)) == 0
    assert retry_is_recognised(11)
    log = reopened(log, stop, now_ms)
    assert sum(log.remove_expired_producers(now_ms)) == 0
    assert retry_is_recognised(11)
    assert log.log_end_offset == 24
    assert sum(log.remove_expired_producers(now_ms + DAY_MS)) == 1
    log.close(clean=False)


def test_producer_that_was_idle_for_long_is_forgotten_at_a_clean_start(tmp_path: Path) -> None:
    """Its snapshot says when it was last heard of: a cluster that slept must not remember everybody."""
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS)
    batch = make_batch(2, timestamp_ms=4_102_444_800_000, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_as_leader(batch, read_header(batch), 0, START_MS)
    log = reopened(log, PreviousStop.CLEAN, START_MS + DAY_MS - 1)
    assert list(log.producers.producers) == [7]
    log = reopened(log, PreviousStop.CLEAN, START_MS + DAY_MS)
    assert list(log.producers.producers) == []
    log.close(clean=False)
