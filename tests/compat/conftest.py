"""One cluster of three brokers for every test that does not break it; Java libraries where Maven has them."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from benchmarks.java_libraries import (
    FETCH_TIMEOUT_S,
    LibrariesUnavailableError,
    fetch_connector,
    source_command,
)
from tests.broker_process import prepare
from tests.cluster import LocalCluster
from tests.compat.kafka_jvm import SOURCE, KafkaJvm
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
HERE: Final = Path(__file__).parent
FETCHING_FIXTURES: Final = {"kafka_program", "connector_jars"}
JAVA_TEST_TIMEOUT_S: Final = 120.0


class Shared:
    """The processes that tests of this directory share: each starts for the first test that needs it."""

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()
        self._cluster: LocalCluster | None = None
        self._jvm: KafkaJvm | None = None

    def cluster(self) -> LocalCluster:
        """Return the running cluster."""
        if self._cluster is None:
            self._cluster = self._closing.enter_context(LocalCluster(brokers=3, config=CONFIG))
        return self._cluster

    def jvm(self) -> KafkaJvm:
        """Return the JVM of Kafka's programs, which `kafka_libraries` has found."""
        if self._jvm is None:
            self._jvm = self._closing.enter_context(KafkaJvm())
        return self._jvm

    def close(self) -> None:
        """End all that runs; the next test that needs something starts it again."""
        self._cluster = self._jvm = None
        self._closing.close()


SHARED: Final = Shared()


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """End what tests share when the next one is of another directory.

    This process goes on with those for minutes, and three idle brokers take 5 % of a processor.
    """
    yield
    if nextitem is None or not nextitem.path.is_relative_to(HERE):
        SHARED.close()


@pytest.fixture(scope="session", autouse=True)
def prepared() -> Iterator[None]:
    """Have what brokers are forked from before anybody counts descriptors."""
    prepare()
    yield
    SHARED.close()


@pytest.fixture(scope="module")
def cluster() -> LocalCluster:
    """A running cluster that all tests of this directory share."""
    return SHARED.cluster()


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


@pytest.fixture(scope="module")
def survivor_topic(cluster: LocalCluster, new_topic_name: Callable[[str], str]) -> Iterator[str]:
    """A topic with one record, which must be all there is after the tests of a module."""
    topic = new_topic_name("survivor")
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"before"}])
    yield topic
    produce(cluster.bootstrap_servers, topic, [{"value": b"after"}])
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 2)
    assert [message.value() for message in messages] == [b"before", b"after"]


@pytest.fixture
def survivor(cluster: LocalCluster, survivor_topic: str) -> Iterator[str]:
    """The topic of `survivor_topic`, on brokers that still live after the test."""
    processes = [cluster.process_id(broker_id) for broker_id in cluster.broker_ids]
    yield survivor_topic
    assert [cluster.process_id(broker_id) for broker_id in cluster.broker_ids] == processes
    assert all(cluster.is_running(broker_id) for broker_id in cluster.broker_ids)
    assert cluster.controller.failure is None


@pytest.fixture(scope="session")
def kafka_libraries() -> None:
    """Skip what needs Kafka's own Java programs where Maven has them not."""
    try:
        source_command(SOURCE)
    except LibrariesUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def kafka_program(kafka_libraries: None) -> KafkaProgram:
    """Run Kafka's own Java programs."""
    return SHARED.jvm().run


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """Spark's own Kafka connector, as `spark.jars` takes it; skips as `kafka_program` does."""
    try:
        return fetch_connector()
    except LibrariesUnavailableError as error:
        pytest.skip(str(error))
