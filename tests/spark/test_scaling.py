"""A cluster that is scaled through `Cluster.scale` while it runs, in local mode."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from pyspark.sql import SparkSession

import sparklog
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.hosting import ScaleError, TooFewTaskSlotsError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers
from tests.cluster import wait_for
from tests.spark.sessions import spark_session
from tests.spark.test_application import consume, produce


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with room for six brokers and an ordinary task."""
    with spark_session("local[7]") as session:
        yield session


def see(cluster: sparklog.Cluster, *expected: int) -> None:
    """Return when clients see exactly these brokers: brokers hear of each other's end a moment later."""
    wait_for(lambda: brokers(cluster) == list(expected), f"brokers {expected}")


def brokers(cluster: sparklog.Cluster) -> list[int]:
    return sorted(
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).brokers
    )


def replicas(cluster: sparklog.Cluster, topic: str) -> list[int]:
    """Return the brokers with replicas of the topic."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return sorted({each for partition in found for each in partition.replicas})


def voters(cluster: sparklog.Cluster) -> set[int]:
    servers = parse_bootstrap_servers(cluster.bootstrap_servers)
    with ClusterClient(ClientConfig(bootstrap_servers=servers)) as client:
        topic = TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(PartitionData(partition_index=0),))
        response = client.ask_any(DescribeQuorumRequest(topics=(topic,)))
    (described,) = response.topics[0].partitions
    return {each.replica_id for each in described.current_voters} - {CONTROLLER_ID}


def create(cluster: sparklog.Cluster, topic: str, partitions: int, replication_factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, replication_factor)])[topic].result(20)


@pytest.mark.timeout(240)
def test_cluster_grows_and_shrinks_while_it_runs_and_a_later_start_has_its_size(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Growing took a stop of the whole application, and shrinking was not possible at all."""
    with sparklog.start(spark, log_directories=tmp_path) as cluster:
        cluster.scale(racks=5)
        see(cluster, 0, 1, 2, 3, 4)
        create(cluster, "events", 10, 3)
        assert replicas(cluster, "events") == [0, 1, 2, 3, 4]
        produce(cluster.bootstrap_servers, "events", 500)
        assert sparklog.start(spark, racks=5, log_directories=tmp_path) is cluster
        with pytest.raises(ScaleError, match=r"too few for topic events: its partitions have 3 replicas"):
            cluster.scale(racks=2)
        with pytest.raises(TooFewTaskSlotsError, match=r"9 brokers and one ordinary task need 10"):
            cluster.scale(racks=9)
        cluster.scale(racks=4, timeout_s=60)
        see(cluster, 0, 1, 2, 3)
        assert replicas(cluster, "events") == [0, 1, 2, 3]
        assert len(consume(cluster.bootstrap_servers, "events", 500, partitions=10)) == 500
        cluster.stop()
    with sparklog.start(spark, log_directories=tmp_path) as cluster:
        cluster.scale(timeout_s=60, racks=4)
        see(cluster, 0, 1, 2, 3)
        assert len(consume(cluster.bootstrap_servers, "events", 500, partitions=10)) == 500


@pytest.mark.long
@pytest.mark.timeout(240)
def test_racks_get_more_brokers_and_keep_the_ids_of_those_they_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An id that moved to another rack would put two replicas of a partition into one fault domain."""
    with sparklog.start(spark, log_directories=tmp_path) as cluster:
        cluster.scale(brokers_per_rack=2)
        see(cluster, 0, 1, 2, 1000, 1001, 1002)
    with sparklog.start(spark, brokers_per_rack=2, log_directories=tmp_path) as cluster:
        see(cluster, 0, 1, 2, 1000, 1001, 1002)
        create(cluster, "events", 8, 2)
        cluster.scale(brokers_per_rack=1)
        see(cluster, 0, 1, 2)
        assert replicas(cluster, "events") == [0, 1, 2]


@pytest.mark.timeout(240)
def test_only_job_of_a_cluster_is_replaced_by_a_smaller_one_and_the_cluster_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """For a moment no broker runs: that is not the end of the application."""
    with sparklog.start(spark, racks=1, brokers_per_rack=2, log_directories=tmp_path) as cluster:
        see(cluster, 0, 1)
        cluster.scale(brokers_per_rack=1, timeout_s=60)
        see(cluster, 0)
    # Ids are counted as at the first start, though the directories of broker 1 belong to no broker now.
    with sparklog.start(spark, racks=1, log_directories=tmp_path) as cluster:
        see(cluster, 0)
        cluster.scale(brokers_per_rack=2, timeout_s=60)
        see(cluster, 0, 1)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_start_with_the_first_numbers_serves_though_most_voters_are_beyond_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A supervisor keeps the arguments: one broker of three voters would wait for the others for ever."""
    with sparklog.start(spark, racks=1, log_directories=tmp_path) as cluster:
        cluster.scale(racks=3, timeout_s=60)
        see(cluster, 0, 1, 2)
        wait_for(lambda: voters(cluster) == {0, 1, 2}, "three voters")
    with sparklog.start(spark, racks=1, log_directories=tmp_path) as cluster:
        cluster.scale(racks=3, timeout_s=60)
        see(cluster, 0, 1, 2)
