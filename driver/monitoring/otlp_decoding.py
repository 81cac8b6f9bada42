"""OTLP as samples: what nodes and clients have pushed.

Nodes name metrics as `sparklog/telemetry/otlp.py` says, and mean them by Kafka's names. Clients name them as
KIP-714 says, `org.apache.kafka.producer.connection.count`; these become types of the group "client".
What is in none of the forms that are understood is left out.
"""

from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from sparklog.metrics.catalogue import metric_of
from sparklog.metrics.histogram import Summary
from sparklog.metrics.names import COUNT, MEAN, VALUE, Kind, MetricName
from sparklog.metrics.registry import Sample, figures

__all__ = ["client_figures", "node_figures"]

_TYPE: Final = ":type="
CLIENT_GROUP: Final = "client"


def node_figures(metrics: bytes) -> dict[MetricName, float]:
    """Return the figures that a node has sent; those of metrics that are not known here are left out.

    Raises:
        google.protobuf.message.DecodeError: it is no OTLP.
    """
    return figures(_node_samples(MetricsData.FromString(metrics)))


def client_figures(metrics: bytes, limit: int) -> dict[MetricName, float]:
    """Return the figures that a client has sent, `limit` of them at most.

    Raises:
        google.protobuf.message.DecodeError: it is no OTLP.
    """
    values: dict[MetricName, float] = {}
    for metric, points in _metrics(MetricsData.FromString(metrics)):
        for point in points:
            if len(values) >= limit:
                return values
            tags = _tags(point)
            if hasattr(point, "as_double"):
                values[MetricName(CLIENT_GROUP, metric.name, None, tags)] = _number(point)
            elif point.count:
                values[MetricName(CLIENT_GROUP, metric.name, None, tags, COUNT)] = float(point.count)
                values[MetricName(CLIENT_GROUP, metric.name, None, tags, MEAN)] = point.sum / point.count
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


def _metrics(data: Any) -> Iterator[tuple[Any, Any]]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield metric, _points(metric)


def _points(metric: Any) -> Any:
    kind = metric.WhichOneof("data")
    return () if kind is None else getattr(metric, kind).data_points


def _number(point: Any) -> float:
    return float(point.as_int) if point.WhichOneof("value") == "as_int" else float(point.as_double)


def _tags(point: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((attribute.key, attribute.value.string_value) for attribute in point.attributes))
