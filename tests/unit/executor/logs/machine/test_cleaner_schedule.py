"""Which log is cleaned next, from where to where, and which is left alone."""

from typing import Any

import pytest

from sparklog.executor.logs.machine.cleaner_schedule import (
    Cleanable,
    CleanerSchedule,
    LogFacts,
    SegmentFacts,
    cleanable_part,
)
from sparklog.protocol.types import TopicPartition

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


def segment(base_offset: int, size_bytes: int = 100, age_hours: int = 10) -> SegmentFacts:
    timestamp_ms = NOW_MS - age_hours * HOUR_MS
    return SegmentFacts(base_offset, size_bytes, timestamp_ms, timestamp_ms)


def log(name: str = "t", **changed: Any) -> LogFacts:
    """Return a log of three sealed segments and an active one at 30, that was never cleaned."""
    facts = LogFacts(
        TopicPartition(name, 0),
        [segment(0), segment(10), segment(20)],
        active_base_offset=30,
        log_start_offset=0,
        log_end_offset=40,
        last_stable_offset=40,
        cleaned_offset=None,
        min_cleanable_dirty_ratio=0.5,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=None,
    )
    return facts._replace(**changed)


def test_log_that_was_never_cleaned_is_dirty_from_its_start_to_its_active_segment() -> None:
    """The active segment is written to: it is never cleaned."""
    assert cleanable_part(log(), NOW_MS) == Cleanable(TopicPartition("t", 0), 0, 30, 1.0, is_due=True)
    assert cleanable_part(log(log_start_offset=5), NOW_MS).first_dirty_offset == 5


def test_nothing_above_the_last_stable_offset_is_cleaned() -> None:
    """What is not committed may go back, what a transaction wrote may be aborted."""
    part = cleanable_part(log(last_stable_offset=15), NOW_MS)
    assert (part.end_offset, part.dirty_ratio) == (15, 1.0)
    assert not cleanable_part(log(last_stable_offset=5), NOW_MS).is_due


def test_log_is_cleaned_when_more_than_the_ratio_of_it_is_new() -> None:
    """Every cleaning copies what is clean: it waits until that is worth it."""
    part = cleanable_part(log(cleaned_offset=20), NOW_MS)
    assert (part.first_dirty_offset, part.dirty_ratio, part.is_due) == (20, 1 / 3, False)
    assert cleanable_part(log(cleaned_offset=20, min_cleanable_dirty_ratio=0.3), NOW_MS).is_due
    assert not cleanable_part(log(cleaned_offset=30, min_cleanable_dirty_ratio=0), NOW_MS).is_due


def test_records_younger_than_the_least_lag_are_not_cleaned() -> None:
    """A consumer that is as old as the lag sees every record."""
    segments = [segment(0, age_hours=9), segment(10, age_hours=1), segment(20, age_hours=9)]
    part = cleanable_part(log(segments=segments, min_compaction_lag_ms=2 * HOUR_MS), NOW_MS)
    assert part.end_offset == 10


def test_log_with_records_older_than_the_longest_lag_is_due_however_clean_it_is() -> None:
    """A key that must be forgotten by law is forgotten in time."""
    facts = log(cleaned_offset=20, min_cleanable_dirty_ratio=1.0)
    assert not cleanable_part(facts._replace(max_compaction_lag_ms=11 * HOUR_MS), NOW_MS).is_due
    assert cleanable_part(facts._replace(max_compaction_lag_ms=9 * HOUR_MS), NOW_MS).is_due
    clean = facts._replace(cleaned_offset=30, max_compaction_lag_ms=HOUR_MS)
    assert not cleanable_part(clean, NOW_MS).is_due


@pytest.mark.parametrize("cleaned_offset", [3, 41, 10**12])
def test_checkpoint_outside_the_log_is_not_believed(cleaned_offset: int) -> None:
    """A log that lost its end, or has another's checkpoint, is cleaned from its start on."""
    assert cleanable_part(log(log_start_offset=5, cleaned_offset=cleaned_offset), NOW_MS)[1] == 5


def test_dirtiest_log_is_cleaned_first_and_none_twice_at_a_time() -> None:
    """Where most is new, most can go."""
    logs = [log("a", cleaned_offset=10), log("b"), log("c", cleaned_offset=20)]
    schedule = CleanerSchedule()
    chosen = [schedule.choose(logs, NOW_MS, 0) for _ in range(3)]
    assert [part and part.topic_partition.topic for part in chosen] == ["b", "a", None]
    schedule.ended(TopicPartition("a", 0))
    again = schedule.choose(logs, NOW_MS, 0)
    assert again is not None
    assert again.topic_partition.topic == "a"


def test_log_that_cannot_be_cleaned_is_left_alone_ever_longer() -> None:
    """It must not keep the others waiting, nor fill the log; and once it is repaired it is cleaned."""
    schedule = CleanerSchedule()
    retries = []
    now_ms = 0
    for _ in range(9):
        assert schedule.choose([log()], NOW_MS, now_ms) is not None
        aside = schedule.failed(TopicPartition("t", 0), "its disk is full", now_ms)
        assert aside.reason == schedule.set_aside[TopicPartition("t", 0)].reason == "its disk is full"
        assert schedule.choose([log()], NOW_MS, aside.retry_ms - 1) is None
        retries.append(aside.retry_ms - now_ms)
        now_ms = aside.retry_ms
    assert retries == [minutes * 60_000 for minutes in (1, 2, 4, 8, 16, 32, 60, 60, 60)]
    assert schedule.choose([log()], NOW_MS, now_ms) is not None
    schedule.ended(TopicPartition("t", 0))
    assert schedule.set_aside == {}


def test_log_that_is_gone_is_set_aside_no_more() -> None:
    """A topic that was deleted must not count as one that cannot be cleaned."""
    schedule = CleanerSchedule()
    schedule.failed(TopicPartition("t", 0), "damaged", 0)
    schedule.choose([log("u", cleaned_offset=20)], NOW_MS, 0)
    assert schedule.set_aside == {}
    assert schedule.highest_dirty_ratio == 1 / 3


def test_log_that_was_cut_inside_what_was_cleaned_has_nothing_to_clean() -> None:
    """What was cleaned may have become the active segment again: its end is no end of a cleaning."""
    part = cleanable_part(log(segments=[segment(0)], active_base_offset=10, cleaned_offset=25), NOW_MS)
    assert (part.first_dirty_offset, part.end_offset, part.is_due) == (25, 25, False)
