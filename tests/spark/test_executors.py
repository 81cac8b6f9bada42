"""Brokers in real executors (local-cluster): one to an executor, and what happens when one is killed."""

import os
import re
import signal
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import sparklog
from sparklog.hosting import Cluster
from tests.cluster import wait_for
from tests.spark.processes import strangers_at
from tests.spark.sessions import BROKER_RESOURCE, HAS_PRIVATE_SOCKETS, spark_session
from tests.spark.test_application import consume, listening_processes, produce


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Three executors, each with room for one broker and one ordinary task, as docs/security.md has them."""
    properties = {
        "spark.decommission.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        **BROKER_RESOURCE,
    }
    with spark_session("local-cluster[3,2,1024]", **properties) as session:
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


def executor_of(worker: int) -> psutil.Process:
    """Return the JVM whose Python daemon has started the worker."""
    daemon = psutil.Process(worker).parent()
    assert daemon is not None
    executor = daemon.parent()
    assert executor is not None
    return executor


@pytest.mark.skipif(not HAS_PRIVATE_SOCKETS, reason="barrier tasks of Spark 4.0 have ports")
def test_executors_outlive_strangers_at_all_their_ports(cluster: Cluster) -> None:
    """Every user of a host reaches its loopback: at a barrier task's port he ended its executor."""
    before = broker_processes(cluster)
    executors = {executor_of(process) for process in before.values()}
    assert len(executors) == 3
    with strangers_at(executors):
        produce(cluster.bootstrap_servers, "visited", 100)
    assert broker_processes(cluster) == before
    assert all(executor.is_running() for executor in executors)


def leader_of_new_topic(cluster: Cluster, topic: str) -> int:
    """Create a topic with one partition and 300 records; return the broker that leads it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(10)
    produce(cluster.bootstrap_servers, topic, 300)
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        pytest.param("worker", signal.SIGKILL, id="worker-killed"),
        pytest.param("daemon", signal.SIGKILL, id="daemon-killed", marks=pytest.mark.long),
        pytest.param("executor", signal.SIGKILL, id="executor-killed"),
        pytest.param("worker", signal.SIGSTOP, id="worker-frozen", marks=pytest.mark.long),
        pytest.param("executor", signal.SIGPWR, id="executor-decommissioned", marks=pytest.mark.long),
    ],
)
def test_lost_broker_comes_back_and_nothing_acknowledged_is_lost(
    cluster: Cluster, victim: str, number: signal.Signals
) -> None:
    """A rack is a fault domain: the others serve on, and its broker is back in sync by itself.

    SIGPWR is what Spark has an executor's host send it when it decommissions it.
    """
    topic = f"{victim}-{number.name}"
    leader = leader_of_new_topic(cluster, topic)
    worker = psutil.Process(broker_processes(cluster)[leader])
    executor = executor_of(worker.pid)
    victims = {"worker": worker, "daemon": worker.parent(), "executor": executor}
    os.kill(victims[victim].pid, number)
    produce(cluster.bootstrap_servers, topic, 300)
    values = consume(cluster.bootstrap_servers, topic, 600)
    assert values == [str(number % 300).encode() for number in range(600)]
    wait_for(lambda: not worker.is_running(), "the broker's process has ended", timeout_s=30)
    wait_for(lambda: in_sync(cluster, topic) == {0, 1, 2}, "the broker is in sync again", timeout_s=60)
    moved = executor_of(broker_processes(cluster)[leader]).pid != executor.pid
    assert moved == (victim == "executor")


@pytest.mark.long
def test_rack_without_an_executor_waits_in_sight_while_the_others_serve(
    spark: SparkSession, cluster: Cluster
) -> None:
    """Too few executors is no reason to stop: the cluster has the racks that it has, and says so."""
    topic = "one-rack-less"
    leader = leader_of_new_topic(cluster, topic)
    before = broker_processes(cluster)
    (executor_id,) = executors_of(spark, f"rack-{leader}")
    context = spark.sparkContext._jsc.sc()
    # Spark takes it for an executor that is needed no more, and starts no other one for it.
    assert context.killExecutor(executor_id)
    waiting = f"sparklog rack-{leader}: broker {leader} waits for an executor"
    wait_for(lambda: any(job.startswith(waiting) for job in running_jobs(spark)), "the rack waits", 30)
    produce(cluster.bootstrap_servers, topic, 300)
    assert set(broker_processes(cluster)) == {0, 1, 2} - {leader}
    # The kill has left Spark with no wish for executors, so these are all that it is to have.
    assert context.requestExecutors(3)
    wait_for(lambda: in_sync(cluster, topic) == {0, 1, 2}, "the broker is in sync again", timeout_s=60)
    assert not any("waits" in job for job in running_jobs(spark))
    after = broker_processes(cluster)
    assert {broker: after[broker] for broker in after if broker != leader} == {
        broker: before[broker] for broker in before if broker != leader
    }


def running_jobs(spark: SparkSession) -> list[str]:
    """Return what Spark's UI calls the jobs that run, without links."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(index) for index in range(jobs.size())]
    running = [str(job.description().get()) for job in found if str(job.status()) == "RUNNING"]
    return [re.sub("<[^>]*>", "", description) for description in running]


def executors_of(spark: SparkSession, rack: str) -> set[str]:
    """Return the executors on which the rack's brokers run."""
    context = spark.sparkContext._jsc.sc()
    jobs = context.statusStore().jobsList(None)
    return {
        str(tasks.apply(task).executorId())
        for index in range(jobs.size())
        for job in [jobs.apply(index)]
        if str(job.status()) == "RUNNING" and f" {rack}:" in str(job.description().get())
        for tasks in [context.statusStore().taskList(job.stageIds().apply(0), 0, 10)]
        for task in range(tasks.size())
    }


def test_ordinary_jobs_run_beside_the_brokers(spark: SparkSession, cluster: Cluster) -> None:
    """Brokers leave slots to the application's own work, DataFrames over their topics included."""
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    rows.write.format("sparklog").option("topic", "frames").mode("append").save()
    read = spark.read.format("sparklog").option("subscribe", "frames").load()
    assert read.selectExpr("cast(value as string) as value").distinct().count() == 1000
