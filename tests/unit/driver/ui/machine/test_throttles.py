"""Throttling is two events: it began, it ended."""

from sparklog.driver.ui.machine.status import ApiStatusMetrics, BrokerStatusMetrics, Event
from sparklog.driver.ui.machine.throttles import Throttles


def figures(throttle_ms_per_s: float) -> dict[int, BrokerStatusMetrics]:
    produce = ApiStatusMetrics(
        api="Produce", requests_per_s=5.0, p99_ms=None, throttle_ms_per_s=throttle_ms_per_s
    )
    return {1: BrokerStatusMetrics(requests=(produce,))}


def test_throttling_that_lasts_is_one_event_and_its_end_another() -> None:
    """A client over its quota for an hour must not push everything else out of the list."""
    throttles = Throttles()
    assert throttles.look(figures(0.0), 1) == []
    began = Event(
        at_ms=2,
        kind="throttled",
        subject="Produce of broker 1",
        reason="clients are over their quotas: told to hold back for 250 ms a second",
    )
    assert throttles.look(figures(250.0), 2) == [began]
    assert throttles.look(figures(900.0), 3) == []
    ended = Event(at_ms=4, kind="not throttled", subject="Produce of broker 1", reason="")
    assert throttles.look(figures(0.0), 4) == [ended]
