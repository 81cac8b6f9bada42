"""What a session must not have, and a session that ends before its cluster is stopped."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException, StreamingQueryException

import sparklog
from sparklog.hosting import DynamicAllocationError
from tests.cluster import wait_for
from tests.spark.sessions import spark_session
from tests.spark.test_application import listening_processes, temporary_directory


def test_start_under_dynamic_allocation_is_refused_with_the_property_to_set() -> None:
    """Spark refuses barrier stages there, but only after the job is submitted."""
    with (
        spark_session("local[6]", spark_dynamicAllocation_enabled="true") as spark,
        pytest.raises(DynamicAllocationError, match=r"spark\.dynamicAllocation\.enabled=false"),
    ):
        sparklog.start(spark)


def test_stopped_cluster_is_told_of_at_once_and_starts_that_race_make_one_new(tmp_path: Path) -> None:
    """The format named the dead address, and queries failed after a minute, for a timeout."""
    stopped = "this application's cluster was stopped"
    with spark_session("local[6]", spark_dynamicAllocation_enabled="false") as spark:
        one_row = spark.range(1).selectExpr("cast(id as string) as value")
        first = sparklog.start(spark, racks=1)
        one_row.write.format("sparklog").option("topic", "t").mode("append").save()
        read_before = spark.read.format("sparklog").option("subscribe", "t").load()
        reading = spark.readStream.format("sparklog").option("subscribe", "t").load()
        query = reading.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        wait_for(lambda: query.lastProgress is not None, "the query runs")
        first.stop()
        with pytest.raises(StreamingQueryException, match=stopped):
            query.awaitTermination(30)
        with pytest.raises(AnalysisException, match=stopped):
            read_before.collect()
        with pytest.raises(AnalysisException, match=stopped) as refused:
            spark.read.format("sparklog").option("subscribe", "t").load()
        assert "Traceback" not in str(refused.value)
        with pytest.raises(AnalysisException, match=stopped):
            one_row.write.format("sparklog").option("topic", "t").mode("append").save()
        with ThreadPoolExecutor(2) as starters:
            second, third = starters.map(lambda _: sparklog.start(spark, racks=1), range(2))
        assert second is third is not first
        one_row.write.format("sparklog").option("topic", "t").mode("append").save()
        address = {"kafka.bootstrap.servers": second.bootstrap_servers, "subscribe": "t"}
        assert spark.read.format("sparklog").options(**address).load().count() == 1
    with pytest.raises(sparklog.StartError, match="session is stopped"):
        sparklog.start(spark, racks=1)


def test_session_stopped_while_its_cluster_starts_does_not_wait_for_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a controller nobody tells them to leave; what has not served yet has nothing to flush."""
    monkeypatch.setattr("driver.cluster.LEAVE_TIMEOUT_S", 3_600.0)
    with ThreadPoolExecutor(1) as starter:
        with spark_session("local[6]", spark_dynamicAllocation_enabled="false") as spark:
            starting = starter.submit(sparklog.start, spark, racks=1)
            tracker = spark.sparkContext.statusTracker()
            wait_for(tracker.getActiveJobsIds, "the broker's job runs")
        with pytest.raises(sparklog.StartError, match="stopped before it was up"):
            starting.result(timeout=60)


def test_session_stopped_before_its_cluster_takes_the_cluster_along() -> None:
    """A notebook that only calls spark.stop() must not leave ports, processes or files."""
    # A JVM keeps the properties of the session that launched it, which the test before this one may have.
    with spark_session("local[6]", spark_dynamicAllocation_enabled="false") as spark:
        cluster = sparklog.start(spark)
        brokers = (
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).brokers
        )
        ports = {broker.port for broker in brokers.values()}
        ports.add(int(cluster.bootstrap_servers.rpartition(":")[2]))
    wait_for(lambda: not listening_processes(ports), "no broker and no controller listens any more")
    wait_for(lambda: not temporary_directory(cluster).exists(), "the temporary directory is gone")
    cluster.stop()
