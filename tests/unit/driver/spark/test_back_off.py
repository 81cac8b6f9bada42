"""The pauses between two attempts at a rack."""

from driver.spark.back_off import LAST_S, STEADY_S, BackOff


def test_back_off_of_a_series_of_failures_doubles_up_to_a_bound() -> None:
    """A disk that is gone may come back, and its broker is to be in sync within seconds then."""
    back_off = BackOff()
    pauses_s = [back_off.failed(lived_s=1.0) for _ in range(10)]
    assert pauses_s[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert set(pauses_s[6:]) == {LAST_S}


def test_back_off_after_a_job_that_served_begins_anew() -> None:
    """Brokers that are killed once in a while must not be away longer each time."""
    back_off = BackOff()
    for _ in range(10):
        back_off.failed(lived_s=1.0)
    assert [back_off.failed(lived_s=STEADY_S) for _ in range(3)] == [0.1, 0.1, 0.1]
    assert [back_off.failed(lived_s=1.0) for _ in range(2)] == [0.2, 0.4]
