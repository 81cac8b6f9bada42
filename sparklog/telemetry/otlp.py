"""Samples as OTLP, the bytes that PushTelemetry carries (opentelemetry.proto.metrics.v1.MetricsData).

    MetricsData     1: ResourceMetrics
    ResourceMetrics 2: ScopeMetrics, one for each ObjectName without name and tags
    ScopeMetrics    1: InstrumentationScope {1: "kafka.server:type=BrokerTopicMetrics"}   2: Metric
    Metric          1: name or attribute   5: Gauge   7: Sum   11: Summary
    Gauge           1: NumberDataPoint
    Sum             1: NumberDataPoint   2: temporality (2 = cumulative)   3: is monotonic
    Summary         1: SummaryDataPoint
    NumberDataPoint 7: attributes   2: start time   3: time   4: double
    SummaryDataPoint 7: attributes  2: start time   3: time   4: count   5: sum
                    6: quantiles {1: quantile   2: value}
    (attributes: KeyValue {1: key   2: AnyValue {1: string}}; times, counts and doubles have 8 bytes)

A broker says the same metrics every second, and only their values differ, which always take the same number
of bytes. So a `MetricsEncoder` keeps the bytes around them: telling 500 figures takes half a millisecond.
Protobuf's own library takes a multiple of that, and 90 ms of every broker's start to be imported.

Source: opentelemetry-proto 1.x, metrics.proto; the tests read it with that library.
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from sparklog.metrics.histogram import Summary
from sparklog.metrics.names import QUANTILES, Kind, MetricName
from sparklog.metrics.registry import Sample

__all__ = ["MetricsEncoder"]

_CUMULATIVE_MONOTONIC: Final = b"\x10\x02\x18\x01"
_POINT: Final = struct.Struct("<BQBQBd")
_SUMMARY: Final = struct.Struct("<BQBQBQBd" + "BBBdBd" * len(QUANTILES))
_QUANTILE_BYTES: Final = 18
_KIND_FIELDS: Final = {Kind.GAUGE: 5, Kind.METER: 7, Kind.HISTOGRAM: 11}


class MetricsEncoder:
    """Writes the samples of one process."""

    def __init__(self, started_at_ms: int) -> None:
        """What is summed up was begun at `started_at_ms`, by the wall clock."""
        self._start_ns = started_at_ms * 1_000_000
        self._heads: dict[MetricName, bytes] = {}
        """What stands before a data point's times and values."""
        self._families: dict[MetricName, tuple[bytes, bytes]] = {}
        """What tells the scope and the name of a metric."""

    def encode(self, samples: Sequence[Sample], now_ms: int) -> bytes:
        """Return a MetricsData with the samples as they are at `now_ms` of the wall clock."""
        now_ns = now_ms * 1_000_000
        start_ns, heads = self._start_ns, self._heads
        if len(heads) > 4 * len(samples) + 1000:  # topics come and go
            heads.clear()
        scopes: dict[bytes, list[bytes]] = {}
        for (kind, family), members in groupby(samples, key=_family):
            points: list[bytes] = []
            for name, _, value in members:
                head = heads.get(name)
                if head is None:
                    head = heads[name] = _head(name, kind)
                points.append(head)
                if isinstance(value, Summary):
                    points.append(_summary(value, start_ns, now_ns))
                else:
                    points.append(_POINT.pack(0x11, start_ns, 0x19, now_ns, 0x21, value))
            if kind is Kind.METER:
                points.append(_CUMULATIVE_MONOTONIC)
            known = self._families.get(family)
            if known is None:
                known = self._families[family] = _scope_and_name(family)
            scope, name_field = known
            metric = name_field + _field(_KIND_FIELDS[kind], b"".join(points))
            scopes.setdefault(scope, []).append(_field(2, metric))
        return _field(1, b"".join(_field(2, scope + b"".join(metrics)) for scope, metrics in scopes.items()))


def _family(sample: Sample) -> tuple[Kind, MetricName]:
    name = sample.name
    return sample.kind, MetricName(name.group, name.type, name.name, (), name.attribute)


def _scope_and_name(family: MetricName) -> tuple[bytes, bytes]:
    scope = f"{family.group}:type={family.type}"
    name = family.attribute if family.name is None else family.name
    return _field(1, _text(1, scope)), _text(1, name)


def _head(name: MetricName, kind: Kind) -> bytes:
    attributes = b"".join(_field(7, _text(1, key) + _field(2, _text(1, value))) for key, value in name.tags)
    size = len(attributes) + (_SUMMARY.size if kind is Kind.HISTOGRAM else _POINT.size)
    return b"\x0a" + _varint(size) + attributes


def _summary(summary: Summary, start_ns: int, now_ns: int) -> bytes:
    values: list[float] = []
    for share, quantile in zip(QUANTILES, summary.quantiles, strict=True):
        values += (0x32, _QUANTILE_BYTES, 0x09, share, 0x11, quantile)
    return _SUMMARY.pack(
        0x11, start_ns, 0x19, now_ns, 0x21, summary.value_count, 0x29, summary.total, *values
    )


def _field(number: int, content: bytes) -> bytes:
    """Return a field whose content has a length before it."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
