"""A cluster inside a Spark application in local mode: start, serve, stop, and every way it must not start."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import sparklog
from sparklog.hosting import (
    BrokerRefusedError,
    NoWritableDirectoryError,
    TooFewTaskSlotsError,
)
from sparklog.node.config import ConfigError
from sparklog.node.storage.directory.meta_properties import read_meta_properties, write_meta_properties
from tests.spark.processes import listening_processes
from tests.spark.sessions import spark_session

RECORDS = 500


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with room for three brokers and some tasks."""
    with spark_session("local[6]") as session:
        yield session


def temporary_directory(cluster: sparklog.Cluster) -> Path:
    """Return where a cluster without directories of its own keeps its logs."""
    return Path(tempfile.gettempdir()) / f"sparklog-{cluster.cluster_id}"


def produce(bootstrap_servers: str, topic: str, count: int) -> None:
    """Produce `count` records with acks=all and see every one acknowledged."""
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for number in range(count):
        producer.produce(
            topic, str(number), on_delivery=lambda error, _: refused.append(error) if error else None
        )
    assert producer.flush(30) == 0
    assert refused == []


def consume(bootstrap_servers: str, topic: str, count: int, partitions: int = 1) -> list[bytes]:
    """Return the first `count` values of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline_s:
        values += [message.value() for message in consumer.consume(count, 0.2) if message.error() is None]
    consumer.close()
    return values


def test_cluster_in_local_mode_serves_clients_and_leaves_nothing_behind(spark: SparkSession) -> None:
    """The promise of one call: any Kafka client works, and afterwards it is as if nothing had been."""
    with sparklog.start(spark) as cluster:
        assert temporary_directory(cluster).exists()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("events", 2, 3)])["events"].result(10)
        produce(cluster.bootstrap_servers, "events", RECORDS)
        values = consume(cluster.bootstrap_servers, "events", RECORDS, partitions=2)
        assert sorted(values) == sorted(str(number).encode() for number in range(RECORDS))
        brokers = admin.list_topics(timeout=10).brokers
        ports = {broker.port for broker in brokers.values()}
        ports.add(int(cluster.bootstrap_servers.rpartition(":")[2]))
        processes = listening_processes(ports)
        assert len(brokers) == 3
        assert len(processes) == 4, "three brokers and the driver, each a process of its own"
    assert listening_processes(ports) == set()
    assert not temporary_directory(cluster).exists()


def test_cluster_with_directories_goes_on_where_it_was_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """The next application over the same directories has the same cluster, records and all."""
    with sparklog.start(spark, racks=1, log_directories=tmp_path) as cluster:
        produce(cluster.bootstrap_servers, "kept", 10)
        cluster_id = cluster.cluster_id
    assert (tmp_path / "broker-0" / ".kafka_cleanshutdown").exists()
    with sparklog.start(spark, racks=1, log_directories=tmp_path) as cluster:
        assert cluster.cluster_id == cluster_id
        produce(cluster.bootstrap_servers, "kept", 10)
        assert len(consume(cluster.bootstrap_servers, "kept", 20)) == 20
    assert cluster.failure is None


@pytest.mark.long
def test_directories_of_two_clusters_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Whichever of the two went on, the other one's records would be lost to it."""
    with sparklog.start(spark, racks=1, log_directories=tmp_path / "one") as cluster:
        one = cluster.cluster_id
    with sparklog.start(spark, racks=1, log_directories=tmp_path / "other") as cluster:
        other = cluster.cluster_id
    moved = (tmp_path / "other" / "broker-0").rename(tmp_path / "one" / "broker-1")
    meta = read_meta_properties(moved)
    assert meta is not None
    write_meta_properties(moved, replace(meta, node_id=1))
    with pytest.raises(BrokerRefusedError, match=r"belong to cluster") as raised:
        sparklog.start(spark, racks=2, log_directories=tmp_path / "one")
    assert one in str(raised.value)
    assert other in str(raised.value)


def test_start_with_too_few_slots_fails_at_once_and_names_the_master_to_use(spark: SparkSession) -> None:
    """Spark would let a barrier job wait for ten minutes."""
    with pytest.raises(TooFewTaskSlotsError, match=r"local\[7\]"):
        sparklog.start(spark, racks=3, brokers_per_rack=2)


def test_start_with_an_unwritable_directory_names_it(spark: SparkSession, tmp_path: Path) -> None:
    """A path below a file can never be made, whoever the user is."""
    (tmp_path / "file").touch()
    with pytest.raises(NoWritableDirectoryError, match="file/logs"):
        sparklog.start(spark, log_directories=tmp_path / "file" / "logs")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"min.insync.replica": "2"}, "min.insync.replicas"),
        ({"num.partitions": "many"}, "num.partitions"),
        ({"zookeeper.connect": "localhost"}, "zookeeper.connect"),
        ({"controller.quorum.bootstrap.servers": "0.0.0.0:9092"}, "name the driver's host"),
    ],
)
def test_start_with_a_wrong_key_or_value_names_it(
    spark: SparkSession, config: dict[str, str], message: str
) -> None:
    """A misspelt key that is ignored is a wrong cluster that looks right."""
    with pytest.raises(ConfigError, match=message):
        sparklog.start(spark, config=config)


def test_start_at_an_address_that_is_not_the_drivers_names_the_key(spark: SparkSession) -> None:
    """The driver may be on another machine than the file was written for."""
    with pytest.raises(sparklog.StartError, match=r"controller\.quorum\.bootstrap\.servers=192\.0\.2\.1:0"):
        sparklog.start(
            spark,
            config={
                "controller.quorum.bootstrap.servers": "192.0.2.1:0",
                "sparklog.trusted.network": "true",
            },
        )


@pytest.mark.parametrize("racks", [0, -1, 1.5])
def test_start_with_an_impossible_number_of_racks_is_refused(spark: SparkSession, racks: int) -> None:
    """The number is the user's; the message must be about it."""
    with pytest.raises(sparklog.StartError, match="racks"):
        sparklog.start(spark, racks=racks)
