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

A broker sends the same metrics every second; only their values differ, which always take the same number of
bytes. So a `MetricsEncoder` keeps the bytes around them: encoding 500 samples takes half a millisecond.
Protobuf's own library takes a multiple of that, and its import 90 ms of every broker's start.

Source: opentelemetry-proto 1.x, metrics.proto; the tests read it with that library.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from sparklog.node.metrics.histogram import Summary
from sparklog.node.metrics.names import QUANTILES, Kind, MetricName
from sparklog.node.metrics.registry import Sample

_CUMULATIVE_MONOTONIC: Final = b"\x10\x02\x18\x01"
_POINT: Final = struct.Struct("<BQBQBd")
_SUMMARY: Final = struct.Struct("<BQBQBQBd" + "BBBdBd" * len(QUANTILES))
_QUANTILE_BYTES: Final = 18
_KIND_FIELDS: Final = {Kind.GAUGE: 5, Kind.METER: 7, Kind.HISTOGRAM: 11}


class _Form(NamedTuple):
    """The constant bytes of one sample."""

    scope: bytes
    family: bytes
    """The name of the metric, and the field number of its points: the same for all of one family."""
    head: bytes
    """The bytes before a data point's times and values."""
    tail: bytes
    """The bytes after the last point of the family."""


class MetricsEncoder:
    def __init__(self, started_at_ms: int) -> None:
        """Sums begin at `started_at_ms`, by the wall clock."""
        self._start_ns = started_at_ms * 1_000_000
        self._forms: dict[MetricName, _Form] = {}

    def encode(self, samples: Sequence[Sample], now_ms: int) -> bytes:
        """Return a MetricsData with the samples at `now_ms` of the wall clock."""
        now_ns = now_ms * 1_000_000
        start_ns, forms = self._start_ns, self._forms
        if len(forms) > 4 * len(samples) + 1000:  # topics come and go
            forms.clear()
        scopes: dict[bytes, dict[bytes, list[bytes]]] = {}
        tails: dict[bytes, bytes] = {}
        for name, kind, value in samples:
            form = forms.get(name)
            if form is None:
                form = forms[name] = _form(name, kind)
            families = scopes.get(form.scope)
            if families is None:
                families = scopes[form.scope] = {}
            points = families.get(form.family)
            if points is None:
                points = families[form.family] = []
                tails[form.family] = form.tail
            points.append(form.head)
            if isinstance(value, Summary):
                points.append(_summary(value, start_ns, now_ns))
            else:
                points.append(_POINT.pack(0x11, start_ns, 0x19, now_ns, 0x21, value))
        written: list[bytes] = []
        for scope, families in scopes.items():
            metrics = [scope]
            for family, points in families.items():
                points.append(tails[family])
                content = b"".join(points)
                metrics.append(_field(2, family + _varint(len(content)) + content))
            written.append(_field(2, b"".join(metrics)))
        return _field(1, b"".join(written))


def _form(name: MetricName, kind: Kind) -> _Form:
    scope = _field(1, _text(1, f"{name.group}:type={name.type}"))
    family = _text(1, name.name or name.attribute) + _varint(_KIND_FIELDS[kind] << 3 | 2)
    attributes = b"".join(_field(7, _text(1, key) + _field(2, _text(1, value))) for key, value in name.tags)
    size = len(attributes) + (_SUMMARY.size if kind is Kind.HISTOGRAM else _POINT.size)
    head = b"\x0a" + _varint(size) + attributes
    return _Form(scope, family, head, _CUMULATIVE_MONOTONIC if kind is Kind.METER else b"")


def _summary(summary: Summary, start_ns: int, now_ns: int) -> bytes:
    values: list[float] = []
    for share, quantile in zip(QUANTILES, summary.quantiles, strict=True):
        values += (0x32, _QUANTILE_BYTES, 0x09, share, 0x11, quantile)
    return _SUMMARY.pack(
        0x11, start_ns, 0x19, now_ns, 0x21, summary.value_count, 0x29, summary.total, *values
    )


def _field(number: int, content: bytes) -> bytes:
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
