"""What nodes send, read with the library that others would read it with."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from sparklog.driver.monitoring.otlp_decoding import decode_node_metrics
from sparklog.node.metrics.catalogue import CATALOGUE
from sparklog.node.metrics.histogram import SECONDS, Histogram, Summary
from sparklog.node.metrics.names import QUANTILES, Kind, Metric
from sparklog.node.metrics.registry import Sample, values_of_samples
from sparklog.node.telemetry.otlp import MetricsEncoder

SUMMARY = Summary(7, 1.5, tuple(share * 100 for share in QUANTILES))


def sample(metric: Metric, number: int) -> Sample:
    """A figure of a metric, with all the tags it may have."""
    tags = {key: f"{key} {number}: é" * 20 for key in metric.tag_keys}
    value = SUMMARY if metric.kind is Kind.HISTOGRAM else float(number)
    return Sample(metric.of(**tags), metric.kind, value)


def test_every_metric_of_the_catalogue_arrives_as_it_was_sent() -> None:
    """Another name or tag on the driver is a figure that no board finds."""
    samples = [sample(metric, number) for metric in CATALOGUE for number in range(3)]
    encoder = MetricsEncoder(1_000)
    for now_ms in (2_000, 3_000):  # the second time from what the encoder has kept
        assert decode_node_metrics(encoder.encode(samples, now_ms)) == values_of_samples(samples)


def test_metrics_are_what_the_library_takes_for_sums_gauges_and_summaries() -> None:
    """Whatever collects OTLP can be given a broker's bytes."""
    meter = next(metric for metric in CATALOGUE if metric.kind is Kind.METER)
    histogram = next(metric for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM)
    gauge = next(metric for metric in CATALOGUE if metric.kind is Kind.GAUGE)
    encoded = MetricsEncoder(1_000).encode([sample(each, 5) for each in (meter, histogram, gauge)], 2_000)
    data = MetricsData.FromString(encoded)
    metrics = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    kinds = {metric.WhichOneof("data"): metric for metric in metrics}
    assert set(kinds) == {"sum", "gauge", "summary"}
    total = kinds["sum"].sum
    assert (total.is_monotonic, total.aggregation_temporality) == (
        True,
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    (point,) = total.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_double) == (10**9, 2 * 10**9, 5)
    (told,) = kinds["summary"].summary.data_points
    assert (told.count, told.sum) == (7, 1.5)
    assert [each.quantile for each in told.quantile_values] == list(QUANTILES)
    assert data.SerializeToString() == MetricsData.FromString(data.SerializeToString()).SerializeToString()


@pytest.mark.parametrize("metric", [metric for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM][:1])
def test_histogram_that_is_empty_arrives_as_zeros(metric: Metric) -> None:
    """Zeros are left out of protobuf by others, and must be found all the same."""
    name = metric.of(request="Produce")
    samples = [Sample(name, Kind.HISTOGRAM, Histogram(SECONDS).read(0))]
    assert decode_node_metrics(MetricsEncoder(0).encode(samples, 1)) == values_of_samples(samples)
