"""The pauses between two attempts at a rack."""

from driver.spark.rack import BACKOFF, STEADY_S, failures_in_a_row


def pauses_s(*lived_s: float) -> list[float]:
    """Return the pause after each of the jobs that lived so long and then failed."""
    pauses, failures = [], 0
    for job_s in lived_s:
        failures = failures_in_a_row(failures, job_s)
        pauses.append(BACKOFF.pause_ms(failures - 1) / 1000)
    return pauses


def test_rack_after_a_series_of_failures_pauses_twice_as_long_up_to_a_bound() -> None:
    """A disk that is gone may come back, and its broker is to be in sync within seconds then."""
    pauses = pauses_s(*[1.0] * 10)
    assert pauses[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert set(pauses[6:]) == {BACKOFF.max_ms / 1000}


def test_rack_after_a_job_that_served_pauses_as_after_the_first_failure() -> None:
    """Brokers that are killed once in a while must not be away longer each time."""
    after_serving = pauses_s(*[1.0] * 10, *[STEADY_S] * 3, 1.0, 1.0)[10:]
    assert after_serving == [0.1, 0.1, 0.1, 0.2, 0.4]
