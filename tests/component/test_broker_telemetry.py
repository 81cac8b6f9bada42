"""Brokers' and clients' figures on their way to the driver: brokers as processes."""

import time
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.server import ControllerServer
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.metrics import controller as controller_names
from sparklog.node.metrics import network, process, server
from sparklog.node.metrics.names import MetricName
from sparklog.node.telemetry.machine.subscriptions import UNASKED
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.codecs import Codec
from tests.cluster import LocalCluster, wait_for

PARTITIONS = 4
RECORDS = 500
RESTART_S = 60.0
"""A new process, on a machine that runs other tests beside this one."""


def value(controller: ControllerServer, node_id: int, name: MetricName) -> float | None:
    """Return the newest figure of a node, if it has sent one."""
    received = controller.broker_metrics.latest().get(node_id)
    return None if received is None else received.values.get(name)


def sum_over_brokers(cluster: LocalCluster, name: MetricName) -> float:
    """Return what all brokers tell together."""
    return sum(value(cluster.controller, node_id, name) or 0 for node_id in cluster.broker_ids)


def has_newer_metrics(controller: ControllerServer, node_id: int, than_ms: int) -> bool:
    """Whether a node has sent figures since then."""
    received = controller.broker_metrics.latest().get(node_id)
    return received is not None and received.received_at_ms > than_ms


CLIENTS_FIGURE = MetricsData()
_metric = CLIENTS_FIGURE.resource_metrics.add().scope_metrics.add().metrics.add()
_metric.name = "org.apache.kafka.producer.connection.count"
_metric.gauge.data_points.add(as_double=3)


def test_figures_of_brokers_and_clients_reach_the_driver_and_go_on_after_a_restart() -> None:
    """What is shown is what was written; clients' comes through a broker; who restarts is heard again."""
    with LocalCluster(brokers=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 2)])["t"].result(10)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
        for _ in range(RECORDS):
            producer.produce("t", b"x" * 100)
        assert producer.flush(10) == 0
        expected = {
            server.MESSAGES_IN.of(): RECORDS,
            server.MESSAGES_IN.of(topic="t"): RECORDS,
            server.LEADER_COUNT.of(): PARTITIONS,
            server.PARTITION_COUNT.of(): 2 * PARTITIONS,
            server.UNDER_REPLICATED.of(): 0,
            server.BROKER_STATE.of(): 2 * 3,
        }

        def told() -> dict[MetricName, float]:
            return {name: sum_over_brokers(cluster, name) for name in expected}

        wait_for(lambda: told() == expected, "the figures of what was written")
        # A broker may have told of the records before it had answered a request to write them,
        answer_time = network.TOTAL_TIME.of("99thPercentile", request="Produce")
        wait_for(lambda: sum_over_brokers(cluster, answer_time) > 0, "the times of the answers")
        assert sum_over_brokers(cluster, process.CPU_TIME.of()) > 0
        # and the controller's own figures come at intervals of their own.
        expected_of_controller = {
            controller_names.ACTIVE_BROKERS.of(): 2,
            controller_names.GLOBAL_PARTITIONS.of(): PARTITIONS,
            controller_names.OFFLINE_PARTITIONS.of(): 0,
        }

        def told_by_controller() -> dict[MetricName, float | None]:
            return {name: value(cluster.controller, CONTROLLER_ID, name) for name in expected_of_controller}

        wait_for(lambda: told_by_controller() == expected_of_controller, "the controller's figures")

        with BlockingChannel(*cluster.address(0), "client") as channel:
            subscribed = channel.request(GetTelemetrySubscriptionsRequest(client_instance_id=None))
            assert subscribed.requested_metrics == UNASKED.metrics
            pushed = channel.request(
                PushTelemetryRequest(
                    client_instance_id=subscribed.client_instance_id,
                    subscription_id=subscribed.subscription_id,
                    terminating=False,
                    compression_type=int(Codec.NONE),
                    metrics=CLIENTS_FIGURE.SerializeToString(),
                )
            )
            assert pushed.error_code is ErrorCode.none
        latest_of_clients = cluster.controller.client_metrics.latest
        wait_for(lambda: subscribed.client_instance_id in latest_of_clients(), "the client's figures")
        assert latest_of_clients()[subscribed.client_instance_id].values == {
            MetricName("client", "org.apache.kafka.producer.connection.count", None): 3
        }

        cluster.kill(1)
        cluster.launch(1)
        restarted_ms = int(time.time() * 1000)
        newer = partial(has_newer_metrics, cluster.controller, 1, restarted_ms)
        wait_for(newer, "the figures of the broker that was started again", RESTART_S)
