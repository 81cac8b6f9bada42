"""The begin and the end of throttling.

A broker that throttles reports it for as long as clients exceed their quotas; operators look for the begin,
the amount, and the end.
"""

from collections.abc import Mapping

from sparklog.driver.ui.machine.status import BrokerStatusMetrics, Event
from sparklog.protocol.types import BrokerId, TimestampMs


class Throttles:
    """The brokers that throttle the clients of each API."""

    def __init__(self) -> None:
        self._throttled: set[tuple[BrokerId, str]] = set()

    def look(self, metrics: Mapping[BrokerId, BrokerStatusMetrics], now_ms: TimestampMs) -> list[Event]:
        """Return an event for each API whose throttling has begun or ended since the last call."""
        throttle_ms = {
            (broker_id, each.api): each.throttle_ms_per_s
            for broker_id, of_broker in metrics.items()
            for each in of_broker.requests
            if each.throttle_ms_per_s
        }
        events = [
            Event(
                at_ms=now_ms,
                kind="throttled",
                subject=f"{api} of broker {broker_id}",
                reason=f"clients are over their quotas: told to hold back for {of_it:,.0f} ms a second",
            )
            for (broker_id, api), of_it in sorted(throttle_ms.items())
            if (broker_id, api) not in self._throttled
        ]
        events += [
            Event(at_ms=now_ms, kind="not throttled", subject=f"{api} of broker {broker_id}", reason="")
            for broker_id, api in sorted(self._throttled - throttle_ms.keys())
        ]
        self._throttled = set(throttle_ms)
        return events
