"""The values in nodes' and clients' OTLP.

Nodes use the metric names of `sparklog/node/telemetry/otlp.py`, which stand for Kafka's. Clients use those of
KIP-714, `org.apache.kafka.producer.connection.count`; these become types of the group "client". Any other
form is left out.

A client's bytes are untrusted. A kilobyte of them can expand to millions of empty messages, or of values of
one name, so the decoded messages are bounded as well as the kept ones: decoding holds Python's global lock,
for which the controller's loop waits.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from sparklog.node.metrics.catalogue import metric_of
from sparklog.node.metrics.histogram import Summary
from sparklog.node.metrics.names import COUNT, MEAN, VALUE, Kind, MetricName
from sparklog.node.metrics.registry import Sample, values_of_samples

_TYPE: Final = ":type="
CLIENT_GROUP: Final = "client"
MAX_LOOKED_AT: Final = 4_000
"""The most resources, scopes, metrics and points of one client's push that are decoded."""
MAX_TAGS: Final = 32
MAX_TEXT_CHARACTERS: Final = 64 << 10
"""The longest sum of the names and tags of one client's metrics."""


def decode_node_metrics(metrics: bytes) -> dict[MetricName, float]:
    """Return the metrics that a node has sent; unknown ones are left out.

    Raises:
        google.protobuf.message.DecodeError: it is no OTLP.
    """
    return values_of_samples(_node_samples(MetricsData.FromString(metrics)))


def decode_client_metrics(metrics: bytes, limit: int) -> dict[MetricName, float]:
    """Return the metrics that a client has sent, at most `limit`, and no more text than MAX_TEXT_CHARACTERS.

    Raises:
        google.protobuf.message.DecodeError: it is no OTLP.
    """
    values: dict[MetricName, float] = {}
    characters_left = MAX_TEXT_CHARACTERS
    for name, point in islice(_client_points(MetricsData.FromString(metrics)), MAX_LOOKED_AT):
        if point is None or len(point.attributes) > MAX_TAGS:
            continue
        tags = _tags(point)
        characters_left -= len(name) + sum(len(key) + len(value) for key, value in tags)
        if len(values) >= limit or characters_left < 0:
            break
        if hasattr(point, "as_double"):
            values[MetricName(CLIENT_GROUP, name, None, tags)] = _number(point)
        elif point.count:
            values[MetricName(CLIENT_GROUP, name, None, tags, COUNT)] = float(point.count)
            values[MetricName(CLIENT_GROUP, name, None, tags, MEAN)] = point.sum / point.count
    return values


def _node_samples(data: Any) -> Iterator[Sample]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            group, _, type_ = scope.scope.name.partition(_TYPE)
            for metric in scope.metrics:
                named = MetricName(group, type_, metric.name, (), VALUE)
                known = metric_of(named) or metric_of(MetricName(group, type_, None, (), metric.name))
                if known is None:
                    continue
                attribute = known.of().attribute
                for point in _points(metric):
                    name = MetricName(group, type_, known.name, _tags(point), attribute)
                    if known.kind is not Kind.HISTOGRAM:
                        yield Sample(name, known.kind, _number(point))
                    else:
                        quantiles = tuple(quantile.value for quantile in point.quantile_values)
                        yield Sample(name, known.kind, Summary(point.count, point.sum, quantiles))


def _client_points(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield the data points by the names of their metrics, and None for each message around them."""
    for resource in data.resource_metrics:
        yield "", None
        for scope in resource.scope_metrics:
            yield "", None
            for metric in scope.metrics:
                name = metric.name
                yield name, None
                for point in _points(metric):
                    yield name, point


def _points(metric: Any) -> Any:
    kind = metric.WhichOneof("data")
    return () if kind is None else getattr(metric, kind).data_points


def _number(point: Any) -> float:
    return float(point.as_int) if point.WhichOneof("value") == "as_int" else float(point.as_double)


def _tags(point: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((attribute.key, attribute.value.string_value) for attribute in point.attributes))
