from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics.names import MetricName

BYTES_IN = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (), "Count")


def test_broker_metrics_keep_the_newest_figures_of_each_node() -> None:
    """A page that is being made reads one state, whatever comes in meanwhile."""
    metrics = BrokerMetrics()
    metrics.received(0, {BYTES_IN: 1}, 1000)
    before = metrics.latest()
    metrics.received(0, {BYTES_IN: 2}, 2000)
    metrics.received(1, {BYTES_IN: 5}, 2001)
    assert before == {0: ReceivedMetrics(1000, {BYTES_IN: 1})}
    assert metrics.latest() == {
        0: ReceivedMetrics(2000, {BYTES_IN: 2}),
        1: ReceivedMetrics(2001, {BYTES_IN: 5}),
    }
