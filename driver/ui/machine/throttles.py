"""The begin and the end of throttling.

A broker that throttles reports it for as long as clients exceed their quotas; operators look for the begin,
the amount, and the end.
"""

from collections.abc import Mapping

from sparklog.driver.ui.machine.status import BrokerFigures, Event
from sparklog.protocol.types import BrokerId, TimestampMs


class Throttles:
    """The brokers that throttle the clients of each API."""

    def __init__(self) -> None:
        self._throttled: set[tuple[BrokerId, str]] = set()

    def look(self, figures: Mapping[BrokerId, BrokerFigures], now_ms: TimestampMs) -> list[Event]:
        """Return the begins and ends since the last call."""
        told_ms = {
            (broker_id, each.api): each.throttle_ms_per_s
            for broker_id, of_broker in figures.items()
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
            for (broker_id, api), of_it in sorted(told_ms.items())
            if (broker_id, api) not in self._throttled
        ]
        events += [
            Event(at_ms=now_ms, kind="not throttled", subject=f"{api} of broker {broker_id}", reason="")
            for broker_id, api in sorted(self._throttled - told_ms.keys())
        ]
        self._throttled = set(told_ms)
        return events
