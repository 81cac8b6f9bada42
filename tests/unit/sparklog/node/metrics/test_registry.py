from sparklog.node.metrics.histogram import SECONDS
from sparklog.node.metrics.names import COUNT, MEAN, Kind, Metric, MetricName
from sparklog.node.metrics.registry import MetricRegistry, Sample

BYTES_IN = Metric("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", Kind.METER, "Bytes.", ("topic",))
TOTAL_TIME = Metric("kafka.network", "RequestMetrics", "TotalTimeMs", Kind.HISTOGRAM, "Time.", ("request",))
EPOCH = Metric("kafka.server", "raft-metrics", None, Kind.GAUGE, "Epoch.", (), "current-epoch")


def test_registry_reads_instruments_gauges_and_sources_out_together() -> None:
    """What is sent to the driver is everything, each figure under one name."""
    registry = MetricRegistry()
    registry.add_source(lambda now_ms: [Sample(BYTES_IN.of(), Kind.METER, 7)])
    registry.histogram(TOTAL_TIME, SECONDS, 1000, request="Fetch").record(0.002)
    registry.gauge(EPOCH, lambda: 7)
    registry.add_source(lambda now_ms: [Sample(BYTES_IN.of(topic="t"), Kind.METER, now_ms)])
    values = registry.snapshot(5)
    assert values[MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (), COUNT)] == 7
    assert values[MetricName("kafka.server", "raft-metrics", None, (), "current-epoch")] == 7
    assert values[BYTES_IN.of(topic="t")] == 5
    assert values[TOTAL_TIME.of(request="Fetch")] == 1
    assert values[TOTAL_TIME.of(MEAN, request="Fetch")] == 2
    assert 1.9 < values[TOTAL_TIME.of("99thPercentile", request="Fetch")] < 2.1


def test_registry_leaves_a_gauge_out_that_has_no_figure() -> None:
    """Missing is not zero."""
    registry = MetricRegistry()
    registry.gauge(EPOCH, lambda: None)
    assert registry.snapshot(0) == {}


def test_registry_is_read_in_short_parts_between_which_more_may_come() -> None:
    """Requests have their turn in between: reading all of it would hold each of them up for milliseconds."""
    registry = MetricRegistry()
    for number in range(200):
        registry.histogram(TOTAL_TIME, SECONDS, 1000, request=f"of before {number}")
    parts = []
    for part in registry.read_in_parts(0):
        parts.append(len(part))
        registry.histogram(TOTAL_TIME, SECONDS, 1000, request=f"of part {len(parts)}")
        registry.gauge(EPOCH, lambda: 7)
        registry.add_source(lambda now_ms: [Sample(BYTES_IN.of(), Kind.METER, 7)])
    assert sum(parts) == 200
    assert max(parts) <= 16
