"""Brokers' metrics for the tab: rates from the counters of two reports, and current values.

The metrics have Kafka's names. Counters grow until the broker restarts; a counter that has decreased starts
over, and gives no rate. Outdated metrics are left out.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.driver.ui.machine.status import ApiStatusMetrics, BrokerStatusMetrics
from sparklog.node.metrics import coordinators
from sparklog.node.metrics.names import COUNT, MEAN, QUANTILES, MetricName
from sparklog.protocol.types import BrokerId, TimestampMs

MAX_AGE_MS: Final = 60_000
_P99: Final = QUANTILES[0.99]
_GROUPS: Final = tuple(coordinators.GROUP_COUNT.of(protocol=each) for each in ("classic", "consumer"))
_MOVING_GROUPS: Final = (
    *(coordinators.CLASSIC_STATES[each].of() for each in ("PreparingRebalance", "CompletingRebalance")),
    *(coordinators.CONSUMER_GROUP_COUNT.of(state=each) for each in ("assigning", "reconciling")),
)


class _Reports(NamedTuple):
    last: ReceivedMetrics
    metrics: BrokerStatusMetrics


class StatusMetricsReader:
    """Reads the newest metrics of every broker; an unchanged report is not read twice."""

    def __init__(self) -> None:
        self._reports: dict[BrokerId, _Reports] = {}

    def read(
        self, latest: Mapping[BrokerId, ReceivedMetrics], now_ms: TimestampMs
    ) -> Mapping[BrokerId, BrokerStatusMetrics]:
        for node_id in self._reports.keys() - latest.keys():
            del self._reports[node_id]
        for node_id, received in latest.items():
            known = self._reports.get(node_id)
            if known is None:
                self._reports[node_id] = _Reports(received, _status_metrics(None, received))
            elif received.received_at_ms != known.last.received_at_ms:
                is_later = received.received_at_ms > known.last.received_at_ms  # or the clock was set back
                self._reports[node_id] = _Reports(
                    received, _status_metrics(known.last if is_later else None, received)
                )
        return {
            node_id: reports.metrics
            for node_id, reports in self._reports.items()
            if now_ms - reports.last.received_at_ms <= MAX_AGE_MS
        }


def _status_metrics(before: ReceivedMetrics | None, now: ReceivedMetrics) -> BrokerStatusMetrics:
    values = now.values
    # One look through all names, of which there are some thousands.
    requests: dict[str, list[MetricName]] = {}
    directory_bytes: dict[str, list[float]] = {}
    for name in values:
        if name.type == "RequestMetrics" and name.name == "RequestsPerSec":
            requests.setdefault(dict(name.tags).get("request", ""), []).append(name)
        elif name.type == "LogDirectory" and name.name is not None:
            directory_bytes.setdefault(name.name, []).append(values[name])
    return BrokerStatusMetrics(
        bytes_in_per_s=_rate(before, now, [_all_topics("BytesInPerSec")]),
        bytes_out_per_s=_rate(before, now, [_all_topics("BytesOutPerSec")]),
        records_in_per_s=_rate(before, now, [_all_topics("MessagesInPerSec")]),
        requests=tuple(
            ApiStatusMetrics(
                api=api,
                requests_per_s=per_s,
                p99_ms=now.values.get(_of_requests("TotalTimeMs", api, _P99)),
                throttle_ms_per_s=_throttle_ms_per_s(before, now, api),
            )
            for api, names in sorted(requests.items())
            if (per_s := _rate(before, now, names))
        ),
        log_size_bytes=_total(directory_bytes.get("LogBytes")),
        free_bytes=_total(directory_bytes.get("FreeBytes")),
        loop_lag_ms=values.get(MetricName("sparklog", "EventLoop", "MaxLagMs")),
        groups=_total([values[name] for name in _GROUPS if name in values]),
        groups_moving=_total([values[name] for name in _MOVING_GROUPS if name in values]),
    )


def _all_topics(name: str) -> MetricName:
    return MetricName("kafka.server", "BrokerTopicMetrics", name, (), COUNT)


def _of_requests(name: str, api: str, attribute: str) -> MetricName:
    return MetricName("kafka.network", "RequestMetrics", name, (("request", api),), attribute)


def _throttle_ms_per_s(before: ReceivedMetrics | None, now: ReceivedMetrics, api: str) -> float:
    if before is None:
        return 0.0
    mean, count = _of_requests("ThrottleTimeMs", api, MEAN), _of_requests("ThrottleTimeMs", api, COUNT)
    total_before_ms, total_ms = (
        report.values.get(mean, 0.0) * report.values.get(count, 0.0) for report in (before, now)
    )
    # A restarted broker had no throttle time before.
    more_ms = total_ms - total_before_ms if total_ms >= total_before_ms else total_ms
    # Means are rounded, so without new requests a small difference may remain.
    return more_ms * 1_000 / (now.received_at_ms - before.received_at_ms) if more_ms >= 1 else 0.0


def _rate(before: ReceivedMetrics | None, now: ReceivedMetrics, names: Iterable[MetricName]) -> float | None:
    """Return the rate a second between two reports, summed over all these names."""
    if before is None:
        return None
    counted: float | None = None
    for name in names:
        count = now.values.get(name)
        if count is None:
            continue
        # A new counter started at zero.
        more = count - before.values.get(name, 0.0)
        if more < 0:
            return None
        counted = more if counted is None else counted + more
    return None if counted is None else counted * 1_000 / (now.received_at_ms - before.received_at_ms)


def _total(values: list[float] | None) -> int | None:
    return None if not values else int(sum(values))
