"""Brokers in real executors (local-cluster): one to an executor, and what happens when one is killed."""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import sparklog
from sparklog.hosting import Cluster
from tests.cluster import wait_for
from tests.spark.sessions import BROKER_RESOURCE, spark_session
from tests.spark.test_application import consume, listening_processes, produce


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Three executors, each with room for one broker and one ordinary task."""
    with spark_session("local-cluster[3,2,1024]", **BROKER_RESOURCE) as session:
        yield session


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[Cluster]:
    """One cluster for the tests of this module, which leave it whole."""
    with sparklog.start(spark, config={"min.insync.replicas": 2}) as running:
        yield running


def broker_processes(cluster: Cluster) -> dict[int, int]:
    """Return the process of each broker that clients are told of."""
    brokers = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).brokers
    return {
        broker.id: process for broker in brokers.values() for process in listening_processes({broker.port})
    }


def in_sync(cluster: Cluster, topic: str) -> set[int]:
    """Return the in-sync replicas of partition 0."""
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, timeout=10)
    return set(metadata.topics[topic].partitions[0].isrs)


def test_brokers_are_kept_one_to_an_executor(cluster: Cluster) -> None:
    """Two brokers in one executor would be lost together, which placement over racks rules out."""
    processes = broker_processes(cluster)
    executors = {psutil.Process(process).parent().parent().pid for process in processes.values()}
    assert len(processes) == 3
    assert len(executors) == 3


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_killed_broker_comes_back_and_nothing_acknowledged_is_lost(cluster: Cluster, victim: str) -> None:
    """A rack is a fault domain: the others serve on, and its broker is back in sync by itself."""
    topic = f"killed-{victim}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(10)
    produce(cluster.bootstrap_servers, topic, 300)
    leader = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    worker = psutil.Process(broker_processes(cluster)[leader])
    killed = worker if victim == "worker" else worker.parent().parent()
    os.kill(killed.pid, signal.SIGKILL)
    produce(cluster.bootstrap_servers, topic, 300)
    values = consume(cluster.bootstrap_servers, topic, 600)
    assert values == [str(number % 300).encode() for number in range(600)]
    wait_for(lambda: in_sync(cluster, topic) == {0, 1, 2}, "the killed broker is in sync again", timeout_s=60)


def test_ordinary_jobs_run_beside_the_brokers(spark: SparkSession, cluster: Cluster) -> None:
    """Brokers leave slots to the application's own work, DataFrames over their topics included."""
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    rows.write.format("sparklog").option("topic", "frames").mode("append").save()
    read = spark.read.format("sparklog").option("subscribe", "frames").load()
    assert read.selectExpr("cast(value as string) as value").distinct().count() == 1000
