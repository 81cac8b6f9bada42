"""When the pieces of the logs' upkeep are due."""

from sparklog.executor.logs.machine.upkeep_schedule import UpkeepSchedule


def test_piece_is_due_an_interval_after_it_was_last_due_however_late_it_began() -> None:
    """Pieces that begin together would drift apart with each late turn, and each wake the broker alone."""
    schedule: UpkeepSchedule[str] = UpkeepSchedule()
    schedule.add("a", interval_ms=1000, first_due_ms=500)
    assert schedule.begin_due(499) == []
    assert schedule.begin_due(600) == ["a"]
    schedule.ended("a")
    assert schedule.begin_due(1499) == []
    assert schedule.begin_due(1500) == ["a"]
    schedule.ended("a")
    assert schedule.begin_due(9000) == ["a"]
    schedule.ended("a")
    assert schedule.begin_due(9499) == []
    assert schedule.begin_due(9500) == ["a"]


def test_piece_that_does_not_end_is_not_begun_again_and_holds_no_other_up() -> None:
    """A disk that hangs costs what is done on it, once, and nothing else."""
    schedule: UpkeepSchedule[str] = UpkeepSchedule()
    schedule.add("hangs", interval_ms=100, first_due_ms=0)
    schedule.add("other", interval_ms=100, first_due_ms=0)
    assert schedule.begin_due(0) == ["hangs", "other"]
    schedule.ended("other")
    for now_ms in range(100, 1000, 100):
        assert schedule.begin_due(now_ms) == ["other"]
        schedule.ended("other")
    schedule.ended("hangs")
    assert schedule.begin_due(1000) == ["hangs", "other"]
