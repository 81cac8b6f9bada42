"""What a session must not have, and a session that ends before its cluster is stopped."""

import pytest
from confluent_kafka.admin import AdminClient

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
