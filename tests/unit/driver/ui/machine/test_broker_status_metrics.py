"""Rates and figures from what brokers report."""

from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.driver.ui.machine.broker_status_metrics import MAX_AGE_MS, StatusMetricsReader
from sparklog.driver.ui.machine.status import ApiStatusMetrics, BrokerStatusMetrics
from sparklog.node.metrics.names import COUNT, MEAN, VALUE, MetricName

BYTES_IN = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (), COUNT)
BYTES_IN_OF_A_TOPIC = BYTES_IN._replace(tags=(("topic", "a"),))


def requests(api: str, version: str) -> MetricName:
    tags = (("request", api), ("version", version))
    return MetricName("kafka.network", "RequestMetrics", "RequestsPerSec", tags, COUNT)


def p99(api: str) -> MetricName:
    return MetricName("kafka.network", "RequestMetrics", "TotalTimeMs", (("request", api),), "99thPercentile")


def directory(name: str, path: str) -> MetricName:
    return MetricName("sparklog", "LogDirectory", name, (("logDirectory", path),), VALUE)


def test_rates_are_what_two_reports_differ_by() -> None:
    """Counts since the start of a broker say nothing of now."""
    reader = StatusMetricsReader()
    first = {BYTES_IN: 1_000.0, BYTES_IN_OF_A_TOPIC: 900.0, requests("Produce", "12"): 10.0}
    assert reader.read({1: ReceivedMetrics(0, first)}, 0) == {1: BrokerStatusMetrics()}
    second = {
        BYTES_IN: 3_000.0,
        requests("Produce", "12"): 30.0,
        requests("Produce", "11"): 4.0,
        requests("Metadata", "12"): 0.0,
        p99("Produce"): 12.5,
        directory("LogBytes", "/a"): 5.0,
        directory("LogBytes", "/b"): 6.0,
        directory("FreeBytes", "/a"): 70.0,
        MetricName("sparklog", "EventLoop", "MaxLagMs"): 0.25,
    }
    assert reader.read({1: ReceivedMetrics(2_000, second)}, 2_000) == {
        1: BrokerStatusMetrics(
            bytes_in_per_s=1_000.0,
            requests=(ApiStatusMetrics(api="Produce", requests_per_s=12.0, p99_ms=12.5),),
            log_size_bytes=11,
            free_bytes=70,
            loop_lag_ms=0.25,
        )
    }


def test_broker_that_was_started_again_has_no_rate_until_its_next_report() -> None:
    """Its counts begin at 0, and a negative rate is nonsense."""
    reader = StatusMetricsReader()
    reader.read({1: ReceivedMetrics(0, {BYTES_IN: 1_000.0})}, 0)
    assert reader.read({1: ReceivedMetrics(1_000, {BYTES_IN: 10.0})}, 1_000)[1].bytes_in_per_s is None
    assert reader.read({1: ReceivedMetrics(2_000, {BYTES_IN: 30.0})}, 2_000)[1].bytes_in_per_s == 20.0


def test_figures_go_on_when_the_clock_is_set_back() -> None:
    """They would be those of an hour ago for an hour, under an age of nothing."""
    reader = StatusMetricsReader()
    reader.read({1: ReceivedMetrics(3_600_000, {BYTES_IN: 10.0})}, 3_600_000)
    assert reader.read({1: ReceivedMetrics(1_000, {BYTES_IN: 20.0})}, 1_000)[1].bytes_in_per_s is None
    assert reader.read({1: ReceivedMetrics(2_000, {BYTES_IN: 30.0})}, 2_000)[1].bytes_in_per_s == 10.0


def test_report_is_read_once() -> None:
    """The page is made every second, reports come less often and have thousands of names."""
    reader = StatusMetricsReader()
    latest = {1: ReceivedMetrics(0, {BYTES_IN: 1.0})}
    assert reader.read(latest, 500)[1] is reader.read(latest, 1_500)[1]


def test_silent_and_forgotten_brokers_have_no_figures() -> None:
    """A dead broker does not go on receiving what it received last."""
    reader = StatusMetricsReader()
    latest = {1: ReceivedMetrics(0, {BYTES_IN: 1.0})}
    assert reader.read(latest, MAX_AGE_MS + 1) == {}
    assert reader.read({}, 0) == {}


def test_time_that_clients_are_told_to_hold_back_is_what_two_reports_differ_by() -> None:
    """The mean since the start of a broker hides what began a minute ago."""
    reader = StatusMetricsReader()
    mean, count = (p99("Produce")._replace(name="ThrottleTimeMs", attribute=each) for each in (MEAN, COUNT))
    asked = requests("Produce", "12")
    reader.read({1: ReceivedMetrics(0, {asked: 1.0, mean: 2.0, count: 100.0})}, 0)
    figures = reader.read({1: ReceivedMetrics(2_000, {asked: 9.0, mean: 3.0, count: 200.0})}, 2_000)
    assert figures[1].requests[0].throttle_ms_per_s == 200.0
    figures = reader.read({1: ReceivedMetrics(4_000, {asked: 11.0, mean: 3.0, count: 200.0})}, 4_000)
    assert figures[1].requests[0].throttle_ms_per_s == 0.0
