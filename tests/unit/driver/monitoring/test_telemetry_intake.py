"""What comes in by PushTelemetry, and whose it is taken for."""

import sys
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from sparklog.driver.controller.api.telemetry import ControllerTelemetry, subscription_of_brokers
from sparklog.driver.monitoring.broker_metrics import BrokerMetrics
from sparklog.driver.monitoring.client_metrics import (
    EXPIRY_MS,
    MAX_INSTANCES,
    MAX_SAMPLES_EACH,
    ClientMetrics,
    ReceivedClientMetrics,
)
from sparklog.driver.monitoring.telemetry_intake import (
    MAX_EXPANDED_BYTES_OF_CLIENTS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Push,
    TelemetryIntake,
)
from sparklog.node.acls.acl import Principal
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.registrations import BrokerRegistration
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Kind, MetricName
from sparklog.node.metrics.registry import Sample
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.serving.requests import ANONYMOUS, Request
from sparklog.node.telemetry.machine.subscriptions import UNASKED
from sparklog.node.telemetry.otlp import MetricsEncoder
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.codecs import Codec, compress
from tests.cluster import wait_for

INCARNATION = UUID(int=77)
LEADERS = MetricsEncoder(0).encode([Sample(server.LEADER_COUNT.of(), Kind.GAUGE, 5.0)], 1)


class Somebody:
    """The connection of whoever asks."""

    peer = "127.0.0.1:1"
    accepted_ms = 0
    client_software = ("", "")
    closed = False

    def on_close(self, callback: Callable[[], None]) -> None:
        """Never closes."""


def request(api_key: ApiKey, body: Any, principal: Principal = CLUSTER_PRINCIPAL) -> Request:
    """Return a request of a broker, or of whoever it is."""
    asked = Request(api_key, 0, 0, "client", body, memoryview(b""), Somebody(), "controller")
    asked.principal = principal
    return asked


def subscribed(handlers: Any, id_: UUID) -> Any:
    """Ask what to push."""
    body = GetTelemetrySubscriptionsRequest(client_instance_id=id_)
    return handlers.get_subscriptions(request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, body))


def push(
    handlers: Any, id_: UUID, subscription_id: int, principal: Principal = CLUSTER_PRINCIPAL
) -> ErrorCode:
    """Push a figure."""
    body = PushTelemetryRequest(
        client_instance_id=id_,
        subscription_id=subscription_id,
        terminating=False,
        compression_type=int(Codec.ZSTD),
        metrics=compress(Codec.ZSTD, LEADERS),
    )
    error_code: ErrorCode = handlers.push(request(ApiKey.PUSH_TELEMETRY, body, principal)).error_code
    return error_code


def telemetry_of_broker_3(taken: list[Push]) -> ControllerTelemetry:
    """Return a controller's handlers, with which broker 3 has registered."""
    registration = BrokerRegistration(broker_id=3, broker_epoch=1, incarnation_id=INCARNATION, listeners=())
    return ControllerTelemetry(lambda: MetadataImage(brokers={3: registration}), taken.append)


def test_broker_is_known_by_the_incarnation_it_has_registered() -> None:
    """It is asked for everything each second; others are asked for what clients are."""
    taken: list[Push] = []
    telemetry = telemetry_of_broker_3(taken)
    mine = subscribed(telemetry.direct, INCARNATION)
    assert (mine.requested_metrics, mine.push_interval.seconds) == (subscription_of_brokers(1).metrics, 1)
    assert push(telemetry.direct, INCARNATION, mine.subscription_id) is ErrorCode.none
    others = subscribed(telemetry.direct, UUID(int=78))
    assert others.requested_metrics == UNASKED.metrics
    assert push(telemetry.direct, UUID(int=78), others.subscription_id) is ErrorCode.none
    assert [each.node_id for each in taken] == [3, None]


def test_brokers_of_a_large_cluster_push_so_seldom_that_the_driver_reads_ten_pushes_a_second() -> None:
    """A hundred a second took a quarter of a core, in the interpreter that answers heartbeats."""
    brokers = {
        each: BrokerRegistration(
            broker_id=each, broker_epoch=1, incarnation_id=UUID(int=100 + each), listeners=()
        )
        for each in range(100)
    }
    image = MetadataImage(brokers={0: brokers[0]})
    taken: list[Push] = []
    telemetry = ControllerTelemetry(lambda: image, taken.append)
    first = subscribed(telemetry.direct, UUID(int=100))
    assert push(telemetry.direct, UUID(int=100), first.subscription_id) is ErrorCode.none
    image = MetadataImage(brokers=brokers)
    refused = push(telemetry.direct, UUID(int=100), first.subscription_id)
    assert refused is ErrorCode.unknown_subscription_id
    assert subscribed(telemetry.direct, UUID(int=100)).push_interval.seconds == 10
    assert len(taken) == 1


def test_push_under_a_brokers_incarnation_is_nobodys_unless_it_comes_from_inside() -> None:
    """Who has read the id somewhere must not be able to tell the driver what a broker does."""
    taken: list[Push] = []
    telemetry = telemetry_of_broker_3(taken)
    mine = subscribed(telemetry.direct, INCARNATION)
    assert push(telemetry.direct, INCARNATION, mine.subscription_id, ANONYMOUS) is ErrorCode.none
    assert [each.node_id for each in taken] == [None]


def test_push_in_an_envelope_is_never_a_brokers() -> None:
    """A client must not be able to draw another picture of the cluster than there is."""
    taken: list[Push] = []
    telemetry = telemetry_of_broker_3(taken)
    body = PushTelemetryRequest(
        client_instance_id=INCARNATION,
        subscription_id=1,
        terminating=False,
        compression_type=0,
        metrics=b"figures",
    )
    answer = telemetry.take_forwarded(request(ApiKey.PUSH_TELEMETRY, body))
    assert answer.error_code is ErrorCode.none
    assert [each.node_id for each in taken] == [None]


def test_replaced_incarnation_is_no_broker_any_more() -> None:
    """A zombie's figures would stand for those of its successor."""
    taken: list[Push] = []
    telemetry = telemetry_of_broker_3(taken)
    before = UUID(int=76)
    refused = push(telemetry.direct, before, subscribed(telemetry.direct, INCARNATION).subscription_id)
    assert refused is ErrorCode.unknown_subscription_id
    assert taken == []


def pushed(id_: int, metrics: bytes, *, node_id: int | None = None, is_terminating: bool = False) -> Push:
    """Return what one push brought, not compressed."""
    return Push(node_id, UUID(int=id_), "c", is_terminating, int(Codec.NONE), metrics, 1000 + id_)


def test_flood_of_clients_pushes_is_read_slowly_and_takes_no_nodes_place() -> None:
    """An instance id costs nothing: whoever has a new one for each push must not have the driver's time."""
    brokers, clients = BrokerMetrics(), ClientMetrics()
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "org.apache.kafka.producer.connection.count"
    metric.gauge.data_points.add(as_double=4)
    figures = data.SerializeToString()
    intake = TelemetryIntake(brokers, clients, clock=lambda: 0.0)
    intake.take(pushed(1, LEADERS, node_id=3))
    for number in range(2 * MAX_WAITING):
        intake.take(pushed(100 + number, figures))
    intake.start()
    wait_for(lambda: 3 in brokers.latest() and len(clients.latest()) == 1, "a node's figures and a client's")
    intake.take(pushed(2, LEADERS, node_id=4))
    wait_for(lambda: 4 in brokers.latest(), "another node's figures")
    intake.stop()
    assert len(clients.latest()) == 1


def test_intake_reads_what_nodes_and_clients_push_and_survives_what_is_no_telemetry() -> None:
    """Whoever pushes garbage must not take the others' figures away."""
    brokers, clients = BrokerMetrics(), ClientMetrics()
    intake = TelemetryIntake(brokers, clients)
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "org.apache.kafka.producer.connection.count"
    metric.gauge.data_points.add(as_double=4)
    intake.take(pushed(1, b"\xff\xff garbage"))
    intake.take(pushed(2, b"\xff\xff garbage", node_id=0))
    intake.take(pushed(3, LEADERS, node_id=0))
    intake.take(pushed(4, data.SerializeToString()))
    intake.take(pushed(5, data.SerializeToString()))
    intake.take(pushed(6, b"", is_terminating=True))
    intake.start()
    try:
        wait_for(lambda: len(clients.latest()) == 2, "both clients' figures")
    finally:
        intake.stop()
    assert brokers.latest()[0].values == {server.LEADER_COUNT.of(): 5}
    name = MetricName("client", "org.apache.kafka.producer.connection.count", None)
    assert clients.latest()[UUID(int=4)] == ReceivedClientMetrics("c", 1004, {name: 4})
    assert threading.active_count() < 50


@pytest.mark.parametrize("size_bytes", [10, 1 << 19])
def test_pushes_that_wait_are_bounded_and_the_newest_are_read(size_bytes: int) -> None:
    """Ten thousand clients that push a megabyte each at once must not take the controller's memory."""
    clients = ClientMetrics()
    intake = TelemetryIntake(BrokerMetrics(), clients)
    data = MetricsData()
    data.resource_metrics.add().schema_url = "x" * size_bytes
    metrics = data.SerializeToString()
    count = MAX_WAITING + 10
    for number in range(count):
        intake.take(pushed(number, metrics))
    kept = min(MAX_WAITING, MAX_WAITING_BYTES // len(metrics))
    intake.start()
    try:
        wait_for(lambda: UUID(int=count - 1) in clients.latest(), "the newest push")
    finally:
        intake.stop()
    assert set(clients.latest()) == {UUID(int=number) for number in range(count - kept, count)}


def test_clients_figures_are_bounded_in_number_and_age() -> None:
    """Ten thousand clients that come and go must not fill the driver's memory."""
    clients = ClientMetrics()
    for number in range(MAX_INSTANCES + 10):
        clients.received(UUID(int=number), ReceivedClientMetrics(None, number, {}))
    assert set(clients.latest()) == {UUID(int=number) for number in range(10, MAX_INSTANCES + 10)}
    clients.received(UUID(int=9999), ReceivedClientMetrics(None, MAX_INSTANCES + EXPIRY_MS, {}))
    assert len(clients.latest()) == 11
    clients.ended(UUID(int=9999))
    assert UUID(int=9999) not in clients.latest()


def test_client_that_pushes_thousands_of_figures_has_so_many_kept() -> None:
    """One that makes up names would fill it alone."""
    from sparklog.driver.monitoring.otlp_decoding import decode_client_metrics

    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for number in range(2 * MAX_SAMPLES_EACH):
        metric = metrics.add()
        metric.name = f"m{number}"
        metric.gauge.data_points.add(as_int=number)
    assert len(decode_client_metrics(data.SerializeToString(), MAX_SAMPLES_EACH)) == MAX_SAMPLES_EACH


def bomb(field: str, count: int) -> bytes:
    """Return OTLP whose size is in what it repeats, which compresses to nothing."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    metric = resource.scope_metrics.add().metrics.add()
    metric.name = "m"
    metric.gauge.data_points.add(as_int=1)
    if field == "resources":
        return b"\x0a\x00" * count + data.SerializeToString()
    if field == "tags":
        metric.gauge.data_points[0].ClearField("as_int")
        for _ in range(count):
            metric.gauge.data_points[0].attributes.add()
    else:
        for _ in range(count):
            metric.gauge.data_points.add()
    return data.SerializeToString()


@pytest.mark.parametrize("field", ["resources", "points", "tags"])
def test_client_that_pushes_much_of_nothing_is_looked_at_no_further(field: str) -> None:
    """The thread that reads it holds the lock that the controller's loop needs for its heartbeats: a kilobyte
    that expanded to 16 MiB held it half of the time for half a minute."""
    from sparklog.driver.monitoring import otlp_decoding

    seen = 0

    def count_calls(frame: Any, event: str, argument: Any) -> None:
        nonlocal seen
        if frame.f_code.co_filename == otlp_decoding.__file__:
            seen += 1

    metrics = bomb(field, 100 * otlp_decoding.MAX_LOOKED_AT)
    sys.setprofile(count_calls)
    try:
        otlp_decoding.decode_client_metrics(metrics, MAX_SAMPLES_EACH)
    finally:
        sys.setprofile(None)
    assert 0 < seen < 40 * otlp_decoding.MAX_LOOKED_AT


def test_client_s_long_names_are_not_kept() -> None:
    """Names of a megabyte, five hundred of them from five hundred clients, would be the driver's memory."""
    from sparklog.driver.monitoring.otlp_decoding import MAX_TEXT_CHARACTERS, decode_client_metrics

    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for name in ("short", "x" * MAX_TEXT_CHARACTERS):
        metric = metrics.add()
        metric.name = name
        metric.gauge.data_points.add(as_int=1)
    figures = decode_client_metrics(data.SerializeToString(), MAX_SAMPLES_EACH)
    assert [name.type for name in figures] == ["short"]


def test_client_s_push_that_expands_to_megabytes_is_not_read() -> None:
    """Reading takes hundreds of times the memory of what is read."""
    clients = ClientMetrics()
    intake = TelemetryIntake(BrokerMetrics(), clients)
    data = MetricsData()
    data.resource_metrics.add().schema_url = "x" * MAX_EXPANDED_BYTES_OF_CLIENTS
    compressed = compress(Codec.ZSTD, data.SerializeToString())
    intake.take(pushed(1, compressed)._replace(compression_type=int(Codec.ZSTD)))
    intake.take(pushed(2, b""))
    intake.start()
    try:
        wait_for(clients.latest, "the push after it")
    finally:
        intake.stop()
    assert set(clients.latest()) == {UUID(int=2)}


def test_client_under_a_node_s_id_does_not_take_the_node_s_place() -> None:
    """Whoever has learnt an incarnation id could keep a broker's figures from being read."""
    brokers = BrokerMetrics()
    intake = TelemetryIntake(brokers, ClientMetrics())
    intake.take(pushed(1, LEADERS, node_id=3))
    intake.take(pushed(1, b""))
    intake.start()
    try:
        wait_for(brokers.latest, "the node's figures")
    finally:
        intake.stop()
