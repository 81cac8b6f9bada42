"""The days and hours of a table."""

from datetime import UTC, datetime

import pytest

from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.node.remote_log.machine.periods import PERIODS_MS, period_of


def segment(first_timestamp_ms: int, max_timestamp_ms: int) -> RemoteSegment:
    return RemoteSegment("s", 0, 2, 2, 10, 10, first_timestamp_ms, max_timestamp_ms, 0)


@pytest.mark.parametrize("time", [datetime(2026, 3, 1, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)])
def test_period_of_a_segment_is_icebergs_day_or_hour(time: datetime) -> None:
    """The committer puts it into the table's metadata as the partition."""
    start_ms = int(time.timestamp() * 1000)
    days = (time - datetime(1970, 1, 1, tzinfo=UTC)).days
    whole_day = segment(start_ms, start_ms + PERIODS_MS["day"] - 1)
    assert period_of(whole_day, PERIODS_MS["day"]) == days
    assert period_of(whole_day, PERIODS_MS["hour"]) is None
    assert period_of(segment(start_ms, start_ms), PERIODS_MS["hour"]) == days * 24
    assert period_of(segment(start_ms - 1, start_ms), PERIODS_MS["day"]) is None
