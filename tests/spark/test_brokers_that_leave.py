"""Brokers that leave while their cluster goes on, and brokers that don't leave when it ends."""

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import sparklog
from sparklog.hosting import Cluster
from tests.cluster import wait_for
from tests.spark.sessions import spark_session
from tests.spark.test_application import consume, listening_processes, produce, temporary_directory

pytestmark = pytest.mark.long

LEAVE_TIMEOUT_S = 2.0


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Room for four brokers and a task."""
    with spark_session("local[5]") as session:
        yield session


def broker_processes(cluster: Cluster) -> dict[int, int]:
    """Return the process of each broker that is up."""
    brokers = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).brokers
    return {
        broker.id: process for broker in brokers.values() for process in listening_processes({broker.port})
    }


def test_broker_told_to_leave_by_a_signal_is_started_again_and_keeps_its_rack_and_records(
    spark: SparkSession,
) -> None:
    """Its rack goes with it and comes back as soon as the killed task lets go of the other's directory."""
    with sparklog.start(spark, racks=1, brokers_per_rack=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(10)
        produce(cluster.bootstrap_servers, "t", 100)
        before = broker_processes(cluster)
        assert set(before) == {0, 1}
        os.kill(before[0], signal.SIGTERM)

        def both_are_back() -> bool:
            try:
                after = broker_processes(cluster)
            except KafkaException:
                return False  # the addresses it began with are those of brokers that have left
            return set(after) == {0, 1} and not set(after.values()) & set(before.values())

        wait_for(both_are_back, "both brokers of the rack are back", timeout_s=60)
        values = consume(cluster.bootstrap_servers, "t", 100, partitions=2)
        assert sorted(values) == sorted(str(number).encode() for number in range(100))


def test_stop_with_brokers_that_do_not_leave_is_bounded_for_all_of_them_together(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator's Ctrl-C must not take longer the more racks hang."""
    monkeypatch.setattr("sparklog.driver.cluster.LEAVE_TIMEOUT_S", LEAVE_TIMEOUT_S)
    cluster = sparklog.start(spark, racks=4)
    processes = broker_processes(cluster)
    assert len(processes) == 4
    for process in processes.values():
        os.kill(process, signal.SIGSTOP)
    started_s = time.monotonic()
    cluster.stop()
    assert time.monotonic() - started_s < len(processes) * LEAVE_TIMEOUT_S
    wait_for(
        lambda: not any(psutil.pid_exists(process) for process in processes.values()),
        "Spark has killed the frozen brokers",
    )
    assert not temporary_directory(cluster).exists()
