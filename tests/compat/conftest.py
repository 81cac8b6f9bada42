"""One cluster of three brokers for every test that does not break it; Java libraries where Maven has them."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from benchmarks.java_libraries import (
    FETCH_TIMEOUT_S,
    LibrariesUnavailableError,
    fetch_connector,
)
from tests.broker_process import prepare
from tests.cluster import LocalCluster
from tests.compat.kafka_jvm import KafkaJvm
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import consume, create_topic, produce
from tests.process_resources import let_go, nothing_grows

# Small sessions, so that what dies is replaced soon, groups that begin at once, and members that are heard of
# often; nothing else differs from a user's cluster.
CONFIG = {
    "min.insync.replicas": "2",
    "num.partitions": "1",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
FETCHING_FIXTURES: Final = {"kafka_program", "connector_jars"}
JAVA_TEST_TIMEOUT_S: Final = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that may be the first to fetch Java libraries the time for it."""
    for item in items:
        if FETCHING_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(JAVA_TEST_TIMEOUT_S + FETCH_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a test that failed what its brokers have logged, and what they are at."""
    report = yield
    if report.failed:
        for argument in getattr(item, "funcargs", {}).values():
            if isinstance(argument, LocalCluster) and argument in LocalCluster.running:
                report.sections.append(("Brokers", argument.logs_with_stacks()))
    return report


@pytest.fixture(scope="session", autouse=True)
def prepared() -> None:
    """Have what brokers are forked from before anybody counts descriptors."""
    prepare()


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """A running cluster shared by the whole test run."""
    with LocalCluster(brokers=3, config=CONFIG) as running:
        yield running


@pytest.fixture(autouse=True)
def held(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test after which descriptors, threads or memory are still held that were not before."""
    with nothing_grows(request.session):
        yield
        for when in ("setup", "call", "teardown"):
            let_go(caplog.get_records(when))


@pytest.fixture(scope="session")
def new_topic_name() -> Callable[[str], str]:
    """Return names that no other test uses."""
    numbers = itertools.count()
    return lambda prefix: f"{prefix}-{next(numbers)}"


@pytest.fixture
def survivor(cluster: LocalCluster, new_topic_name: Callable[[str], str]) -> Iterator[str]:
    """A topic with one record, which must be all there is, on brokers that still live, after the test."""
    topic = new_topic_name("survivor")
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"before"}])
    processes = [cluster.process_id(broker_id) for broker_id in cluster.broker_ids]
    yield topic
    assert [cluster.process_id(broker_id) for broker_id in cluster.broker_ids] == processes
    assert all(cluster.is_running(broker_id) for broker_id in cluster.broker_ids)
    assert cluster.controller.failure is None
    produce(cluster.bootstrap_servers, topic, [{"value": b"after"}])
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 2)
    assert [message.value() for message in messages] == [b"before", b"after"]


@pytest.fixture(scope="session")
def kafka_program() -> Iterator[KafkaProgram]:
    """Run Kafka's own Java programs; who needs them is skipped where Maven has them not."""
    with contextlib.ExitStack() as closing:
        try:
            jvm = closing.enter_context(KafkaJvm())
        except LibrariesUnavailableError as error:
            pytest.skip(str(error))
        yield jvm.run


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """Spark's own Kafka connector, as `spark.jars` takes it; skips as `kafka_program` does."""
    try:
        return fetch_connector()
    except LibrariesUnavailableError as error:
        pytest.skip(str(error))
