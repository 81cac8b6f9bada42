"""A session that ends before its cluster is stopped."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient

import sparklog
from tests.cluster import wait_for
from tests.spark.sessions import spark_session
from tests.spark.test_application import listening_processes, temporary_directory


@pytest.mark.long
def test_session_stopped_while_its_cluster_starts_does_not_wait_for_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a controller nobody tells them to leave; what has not served yet has nothing to flush."""
    monkeypatch.setattr("sparklog.driver.cluster.LEAVE_TIMEOUT_S", 3_600.0)
    with ThreadPoolExecutor(1) as starter:
        with spark_session("local[6]", spark_dynamicAllocation_enabled="false") as spark:
            starting = starter.submit(sparklog.start, spark, racks=1)
            tracker = spark.sparkContext.statusTracker()
            wait_for(tracker.getActiveJobsIds, "the broker's job runs")
        with pytest.raises(sparklog.StartError, match="stopped before it was up"):
            starting.result(timeout=60)


def test_context_stopped_in_the_jvm_takes_the_cluster_along() -> None:
    """Nobody asks PySpark's context first, and still no ports, processes or files may be left."""
    # In local mode Spark ignores dynamic allocation, and runs barrier stages all the same. Not in the first
    # session: a JVM keeps the properties of the one that launched it.
    with spark_session("local[6]", spark_dynamicAllocation_enabled="true") as spark:
        cluster = sparklog.start(spark, racks=1)
        brokers = (
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).brokers
        )
        ports = {broker.port for broker in brokers.values()}
        ports.add(int(cluster.bootstrap_servers.rpartition(":")[2]))
        spark.sparkContext._jsc.stop()
    wait_for(lambda: not listening_processes(ports), "no broker and no controller listens any more")
    wait_for(lambda: not temporary_directory(cluster).exists(), "the temporary directory is gone")
    cluster.stop()
    with pytest.raises(sparklog.StartError, match="session is stopped"):
        sparklog.start(spark)
