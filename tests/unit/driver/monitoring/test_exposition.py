"""Figures as Prometheus and Spark's sinks read them."""

import math
import re

import pytest

from sparklog.driver.monitoring.exposition import CONTROLLER, Rates, family_name, for_prometheus, for_sinks
from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics import controller, network, server, storage
from sparklog.node.metrics.catalogue import CATALOGUE
from sparklog.node.metrics.histogram import Summary
from sparklog.node.metrics.names import QUANTILES, Kind
from sparklog.node.metrics.registry import Sample, values_of_samples

TIMES = Summary(4, 10.0, tuple(share * 10 for share in QUANTILES))


def test_exposition_has_labels_help_and_types() -> None:
    """What cannot be asked for by topic or quantile is no use on a board."""
    values = values_of_samples(
        [
            Sample(server.BYTES_IN.of(topic="t"), Kind.METER, 5.0),
            Sample(network.TOTAL_TIME.of(request="Produce"), Kind.HISTOGRAM, TIMES),
            Sample(storage.DIRECTORY_FREE.of(logDirectory='/a "b"\\c'), Kind.GAUGE, 1e12),
        ]
    )
    latest = {
        "3": ReceivedMetrics(1_000, values),
        CONTROLLER: ReceivedMetrics(1_500, {controller.ACTIVE_BROKERS.of(): 3}),
    }
    lines = for_prometheus(latest, 2_000).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'sparklog_telemetry_agems{broker="3"} 1000',
        'sparklog_telemetry_agems{broker="controller"} 500',
        'kafka_server_brokertopicmetrics_bytesin_total{broker="3",topic="t"} 5',
        'kafka_network_requestmetrics_totaltimems_count{broker="3",request="Produce"} 4',
        'kafka_network_requestmetrics_totaltimems_sum{broker="3",request="Produce"} 10',
        *(
            f'kafka_network_requestmetrics_totaltimems{{broker="3",request="Produce",quantile="{share:g}"}} '
            f"{share * 10:.17g}"
            for share in QUANTILES
        ),
        'sparklog_logdirectory_freebytes{broker="3",logdirectory="/a \\"b\\"\\\\c"} 1000000000000',
        'kafka_controller_kafkacontroller_activebrokercount{broker="controller"} 3',
    ]
    assert "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter" in lines
    assert "# TYPE kafka_network_requestmetrics_totaltimems summary" in lines
    assert f"# HELP kafka_server_brokertopicmetrics_bytesin_total {server.BYTES_IN.meaning}" in lines


def test_names_for_prometheus_are_legal_and_differ() -> None:
    """Two metrics under one name would be one series that jumps."""
    names = [family_name(metric) for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) for name in names)


def test_rate_of_a_meter_follows_what_is_counted_and_begins_anew_with_the_process() -> None:
    """A broker that restarts counts from 0: that is no rate of minus a million."""
    rates, name = Rates(), server.BYTES_IN.of()
    rate_name = name._replace(attribute="OneMinuteRate")
    at_ms, count = 0, 0.0
    for _ in range(600):
        at_ms, count = at_ms + 1_000, count + 500
        values = rates.add_to(0, ReceivedMetrics(at_ms, {name: count}))
    assert values[rate_name] == pytest.approx(500, rel=0.01)
    assert rates.add_to(0, ReceivedMetrics(at_ms, {name: count})) == values
    restarted = rates.add_to(0, ReceivedMetrics(at_ms + 1_000, {name: 10.0}))
    assert restarted == {name: 10.0, rate_name: 0.0}


def test_rate_goes_on_when_the_clock_is_set_back() -> None:
    """It would say for an hour what it was an hour ago."""
    rates, name = Rates(), server.BYTES_IN.of()
    at_ms = 3_600_000
    for count in (0.0, 500.0):
        at_ms += 1_000
        before = rates.add_to(0, ReceivedMetrics(at_ms, {name: count}))
    rate_name = name._replace(attribute="OneMinuteRate")
    assert rates.add_to(0, ReceivedMetrics(1_000, {name: 600.0}))[rate_name] == before[rate_name] > 0
    assert rates.add_to(0, ReceivedMetrics(2_000, {name: 9_600.0}))[rate_name] > before[rate_name]


def test_sinks_get_names_that_are_files_everywhere() -> None:
    """A CSV sink makes a file of every name: a directory's slashes would lead elsewhere."""
    values = {
        server.BYTES_IN.of(topic="a.b"): 5.0,
        storage.DIRECTORY_FREE.of(logDirectory="/../../etc/x y"): 1.0,
        server.RAFT_EPOCH.of(): 2,
    }
    assert list(for_sinks("1", values)) == [
        "broker.1.kafka.server.BrokerTopicMetrics.BytesInPerSec.topic.a.b.Count\t5.0",
        "broker.1.sparklog.LogDirectory.FreeBytes.logDirectory._.._.._etc_x_y.Value\t1.0",
        "broker.1.kafka.server.raft-metrics.current-epoch\t2",
    ]
    assert list(for_sinks(CONTROLLER, {server.RAFT_EPOCH.of(): 2})) == [
        "controller.kafka.server.raft-metrics.current-epoch\t2"
    ]


def test_figure_that_is_no_number_is_not_given_to_sinks() -> None:
    """Java reads neither `nan` nor `inf`: it would refuse all the others, too."""
    values = {server.RAFT_EPOCH.of(): 2, server.RAFT_LEADER.of(): math.nan, server.MAX_LAG.of(): math.inf}
    assert len(list(for_sinks("1", values))) == 1
