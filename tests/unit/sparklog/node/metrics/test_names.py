import pytest

from sparklog.node.metrics.names import Kind, Metric, MetricName


@pytest.mark.parametrize(
    ("name", "object_name"),
    [
        (
            MetricName(
                "kafka.network", "RequestMetrics", "RequestsPerSec", (("request", "Fetch"), ("version", "17"))
            ),
            "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Fetch,version=17",
        ),
        (
            MetricName("kafka.server", "raft-metrics", None, (), "current-epoch"),
            "kafka.server:type=raft-metrics",
        ),
        (
            MetricName("kafka.server", "Fetch", None, (("client-id", 'a,b="*'),), "throttle-time"),
            'kafka.server:type=Fetch,client-id="a,b=\\"\\*"',
        ),
    ],
)
def test_name_is_written_as_jmx_writes_it(name: MetricName, object_name: str) -> None:
    """Who knows Kafka's metrics finds them; a client's name cannot pass for another part of it."""
    assert str(name) == object_name


def test_metric_names_its_figures_with_tags_in_one_order() -> None:
    """Two names of the same figure would be two figures."""
    metric = Metric("kafka.log", "Log", "Size", Kind.GAUGE, "Bytes.", ("partition", "topic"))
    assert metric.of(topic="t", partition="0") == metric.of(partition="0", topic="t")
