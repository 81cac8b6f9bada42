"""Cleaning is held to what it may read and write."""

import pytest

from sparklog.node.storage.cleaning import cleaner
from sparklog.node.storage.cleaning.cleaner import Throttle


class Time:
    """A clock that goes on only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_throttle_takes_as_long_as_the_bytes_are_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of any size: over any stretch no more goes through than the rate, and one window."""
    time = Time()
    monkeypatch.setattr(cleaner, "monotonic", lambda: time.now_s)
    monkeypatch.setattr(cleaner, "sleep", time.sleep)
    throttled = Throttle(1_000_000)
    for size_bytes in (4_000_000, 10, 2_000_000, 500_000):
        throttled.take(size_bytes)
    assert time.now_s == pytest.approx(1000 + 6.00001)
    # What was not used is gone: a pause is not made up for.
    time.now_s += 100
    started_s = time.now_s
    for _ in range(3):
        throttled.take(1_000_000)
    assert time.now_s == pytest.approx(started_s + 2)


def test_throttle_without_a_rate_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is no limit."""
    monkeypatch.delattr(cleaner, "sleep")
    Throttle(None).take(10**12)
