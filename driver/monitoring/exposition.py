"""Metrics in the formats of their readers: Prometheus's text with labels, names for Spark's sinks.

Spark's own servlets put everything into a name (`metrics_<application>_driver_sparklog_..._Value`), which
cannot be queried "by topic". So Prometheus gets a page of its own, with the names that the usual rules of its
JMX exporter give Kafka's metrics (`kafka_server_brokertopicmetrics_bytesin_total{topic="t"}`): dashboards
made for Kafka ask for these. A node is the label `broker`.

Sinks get a name for each attribute: `broker.0.kafka.server.BrokerTopicMetrics.BytesInPerSec.topic.t.Count`.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Final, NamedTuple

from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics import process
from sparklog.node.metrics.catalogue import metric_of
from sparklog.node.metrics.names import COUNT, MEAN, QUANTILES, Kind, Metric, MetricName
from sparklog.protocol.types import BrokerId, TimestampMs

CONTROLLER: Final = "controller"
"""The controller's name; a broker's is its id."""
_RATE_S: Final = 60.0
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9_]")
_NOT_IN_A_SINK: Final = re.compile(r"[^A-Za-z0-9_.-]")
_SHARES: Final = {attribute: share for share, attribute in QUANTILES.items()}
_PER_SECOND: Final = "PerSec"


class _Seen(NamedTuple):
    at_ms: TimestampMs
    total: float
    rate: float


class Rates:
    """The rate of each meter a second, as an exponentially weighted average of about a minute.

    Kafka's OneMinuteRate. Made here, because brokers then send one value a meter and spend no time on it.
    """

    def __init__(self) -> None:
        self._seen: dict[BrokerId, dict[MetricName, _Seen]] = {}

    def add_to(self, node_id: BrokerId, received: ReceivedMetrics) -> dict[MetricName, float]:
        values = dict(received.values)
        before = self._seen.get(node_id, {})
        now: dict[MetricName, _Seen] = {}
        for name, count in received.values.items():
            metric = metric_of(name)
            if metric is None or metric.kind is not Kind.METER:
                continue
            seen = now[name] = _next(before.get(name), received.received_at_ms, count)
            values[name._replace(attribute=metric.rate_attribute)] = seen.rate
        self._seen[node_id] = now
        return values

    def forget(self, node_ids: Iterable[BrokerId]) -> None:
        for node_id in node_ids:
            self._seen.pop(node_id, None)


def _next(before: _Seen | None, at_ms: TimestampMs, count: float) -> _Seen:
    # A count that has gone back is of another process.
    if before is None or count < before.total:
        return _Seen(at_ms, count, 0.0)
    if at_ms == before.at_ms:
        return before
    if at_ms < before.at_ms:  # the clock was set back
        return _Seen(at_ms, count, before.rate)
    elapsed_s = (at_ms - before.at_ms) / 1000
    share = 1 - math.exp(-elapsed_s / _RATE_S)
    rate = (count - before.total) / elapsed_s
    return _Seen(at_ms, count, before.rate + share * (rate - before.rate))


# --- Prometheus -----------------------------------------------------------------------------------------


@cache
def family_name(metric: Metric) -> str:
    """Return Prometheus's name of a metric.

    >>> from sparklog.node.metrics import network, server
    >>> family_name(server.BYTES_IN), family_name(server.RAFT_EPOCH), family_name(network.TOTAL_TIME)
    ('kafka_server_brokertopicmetrics_bytesin_total', 'kafka_server_raft_metrics_current_epoch', \
'kafka_network_requestmetrics_totaltimems')
    """
    name = metric.attribute if metric.name is None else metric.name.removesuffix(_PER_SECOND)
    full = _NOT_IN_A_NAME.sub("_", f"{metric.group}_{metric.type}_{name}".lower())
    return full if metric.kind is not Kind.METER or full.endswith("_total") else f"{full}_total"


_TYPES: Final = {Kind.GAUGE: "gauge", Kind.METER: "counter", Kind.HISTOGRAM: "summary"}


def for_prometheus(latest: Mapping[str, ReceivedMetrics], now_ms: TimestampMs) -> str:
    """Return the metrics of all nodes, by the nodes' names, in Prometheus's text format."""
    families: dict[Metric, list[str]] = {process.SAMPLE_AGE: []}
    for node, received in sorted(latest.items()):
        age_ms = max(0, now_ms - received.received_at_ms)
        families[process.SAMPLE_AGE].append(f'{family_name(process.SAMPLE_AGE)}{{broker="{node}"}} {age_ms}')
        for name, value in received.values.items():
            line = _line(node, name)
            if line is not None:
                families.setdefault(line.metric, []).append(_with_value(line, received, name, value))
    written: list[str] = []
    for metric, lines in families.items():
        family = family_name(metric)
        written += (f"# HELP {family} {metric.meaning}", f"# TYPE {family} {_TYPES[metric.kind]}", *lines)
    return "\n".join(written) + "\n"


class _Line(NamedTuple):
    metric: Metric
    text: str
    """The line up to its value."""
    is_mean: bool


_lines: dict[tuple[str, MetricName], _Line | None] = {}
_LINES_KEPT: Final = 50_000


def _line(node: str, name: MetricName) -> _Line | None:
    key = node, name
    if key not in _lines:
        if len(_lines) >= _LINES_KEPT:
            _lines.clear()
        _lines[key] = _made_line(node, name)
    return _lines[key]


def _made_line(node: str, name: MetricName) -> _Line | None:
    metric = metric_of(name)
    if metric is None:
        return None
    labels = {"broker": node, **dict(name.tags)}
    family, is_mean = family_name(metric), False
    if metric.kind is Kind.HISTOGRAM:
        if name.attribute == COUNT:
            family += "_count"
        elif name.attribute == MEAN:
            family, is_mean = f"{family}_sum", True
        else:
            labels["quantile"] = f"{_SHARES[name.attribute]:g}"
    elif name.attribute != metric.of().attribute:
        return None
    listed = ",".join(
        f'{_NOT_IN_A_NAME.sub("_", key.lower())}="{_escaped(value)}"' for key, value in labels.items()
    )
    return _Line(metric, f"{family}{{{listed}}} ", is_mean)


def _with_value(line: _Line, received: ReceivedMetrics, name: MetricName, value: float) -> str:
    if line.is_mean:
        value *= received.values.get(name._replace(attribute=COUNT), 0)
    return f"{line.text}{value:.17g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- Spark's sinks --------------------------------------------------------------------------------------


def for_sinks(node: str, values: Mapping[MetricName, float]) -> Iterator[str]:
    """Yield a line of name, tab and value for each metric of a node."""
    for name, value in values.items():
        if math.isfinite(value):  # infinities and NaN have other names in Java
            yield f"{_sink_name(node, name)}\t{value!r}"


@lru_cache(maxsize=_LINES_KEPT)  # topics come and go
def _sink_name(node: str, name: MetricName) -> str:
    parts = [node if node == CONTROLLER else f"broker.{node}", name.group, name.type]
    if name.name is not None:
        parts.append(name.name)
    for tag in name.tags:
        parts += tag
    parts.append(name.attribute)
    return ".".join(_NOT_IN_A_SINK.sub("_", part) for part in parts)
