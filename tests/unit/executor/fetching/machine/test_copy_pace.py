"""How long copies pause, by the time that they took, and by whether they get anywhere."""

from uuid import UUID

from sparklog.executor.fetching.machine.copy_pace import (
    INTERVAL_US,
    LONGEST_PAUSE_US,
    MOST_PAUSES,
    Copied,
    CopyPace,
)
from sparklog.protocol.types import TopicIdPartition

FIRST, SECOND = (TopicIdPartition(UUID(int=1), number) for number in (0, 1))
TOOK_US = 1_000
STEP_US = INTERVAL_US // 10


class Copying:
    """Two partitions that are copied while producers write to them."""

    def __init__(self, fetched: int, written: int) -> None:
        """So many records of each a step."""
        self.pace = CopyPace()
        self.now_us = INTERVAL_US
        self.fetched, self.written = fetched, written
        self.lags = {FIRST: 10_000, SECOND: 20_000}

    def step(self) -> float:
        """Copy some more; return the pause after it as a multiple of what it took."""
        self.now_us += STEP_US
        for key in self.lags:
            self.lags[key] += self.written - self.fetched
        copied = [Copied(key, self.fetched, lag) for key, lag in self.lags.items()]
        self.pace.took(copied, TOOK_US, self.now_us)
        return self.pace.pause_us(self.now_us) / TOOK_US

    def intervals(self, count: int) -> list[float]:
        """Return the pauses at the ends of intervals."""
        return [[self.step() for _ in range(10)][-1] for _ in range(count)]


def test_copies_that_gain_on_producers_pause_for_most_of_the_time() -> None:
    assert Copying(fetched=500, written=100).intervals(3) == [MOST_PAUSES] * 3


def test_copies_that_do_not_gain_pause_less_and_less_and_longer_again_when_they_do() -> None:
    """Otherwise a broker that is back would never be in sync beside producers at full speed."""
    copying = Copying(fetched=100, written=90)
    assert copying.intervals(6) == [15, 7.5, 3.75, 1.875, 0.937, 0]
    copying.written = 10
    assert copying.intervals(6) == [0, 1, 2, 4, 8, 15]


def test_records_that_were_fetched_before_the_first_answer_of_an_interval_do_not_count() -> None:
    """A partition that joins has an old lag: nothing says how much of it was written just now."""
    pace = CopyPace()
    for second in range(1, 5):
        pace.took([Copied(FIRST, 10, second * 1_000)], TOOK_US, second * INTERVAL_US)
        assert pace.pause_us(second * INTERVAL_US) == MOST_PAUSES * TOOK_US


def test_pauses_of_several_leaders_add_up_to_a_bound() -> None:
    pace = CopyPace()
    pace.took([], 10_000, INTERVAL_US)
    pace.took([], 10_000, INTERVAL_US + 10_000)
    assert pace.pause_us(INTERVAL_US + 10_000) == 2 * MOST_PAUSES * 10_000 - 10_000
    pace.took([], 60_000_000, INTERVAL_US + 20_000)
    assert pace.pause_us(INTERVAL_US + 20_000) == LONGEST_PAUSE_US
    assert pace.pause_us(2 * INTERVAL_US + LONGEST_PAUSE_US) == 0
