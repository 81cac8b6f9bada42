"""Which segments of a table by day become one."""

from collections.abc import Sequence

from sparklog.executor.tiering.machine.plans import next_merge
from sparklog.node.remote_log.machine.manifest import RemoteSegment

DAY_MS = 24 * 60 * 60 * 1000
SEGMENT_BYTES = 100_000_000


def segments(*days: int | tuple[int, int], raw_bytes: int = 1_000) -> tuple[RemoteSegment, ...]:
    """Return neighbours with records of these days, or of days from one to another."""
    spans = [day if isinstance(day, tuple) else (day, day) for day in days]
    return tuple(
        RemoteSegment(f"s{place}", place, place + 1, 1, 100, raw_bytes, first * DAY_MS, last * DAY_MS, 0)
        for place, (first, last) in enumerate(spans)
    )


def merged(found: Sequence[RemoteSegment], period_ms: int | None = DAY_MS) -> list[int] | None:
    """Return the places of the segments that become one."""
    merge = next_merge(found, SEGMENT_BYTES, period_ms)
    return None if merge is None else [each.base_offset for each in merge]


def test_segments_of_one_day_are_merged_up_to_where_the_day_changes() -> None:
    """A segment of two days would have to be divided for the table."""
    found = segments(*[1] * 3, *[2] * 10, *[3] * 3)
    assert merged(found) == list(range(3, 13))
    assert merged(found, None) == list(range(16))


def test_segments_of_quiet_days_stay() -> None:
    """A year of them is 365 segments, each a file of the table."""
    assert merged(segments(*range(365))) is None


def test_segments_whose_days_go_back_and_forth_are_merged_in_the_end() -> None:
    """A topic whose producers have different clocks would have small segments for ever."""
    assert merged(segments(1, 2, 1, 2, 3)) is None
    assert merged(segments(0, *[1, 2] * 5, 3)) == list(range(2, 10))
    # Midnights of several days are no such topic.
    assert merged(segments(*[day + step for day in range(20) for step in (0, 1, 0, 1)])) is None


def test_mixed_segment_is_merged_with_those_of_its_size() -> None:
    """Each merge of a large one with a few small ones would write it again."""
    large = segments((1, 2), raw_bytes=10_000_000)
    small = segments(0, *[1, 2] * 5)[1:]
    assert merged((*large, *small)) == list(range(2, 10))
    assert merged((*large, *small[:6])) is None
