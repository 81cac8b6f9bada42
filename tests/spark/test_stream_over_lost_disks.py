"""An exactly-once stream between two topics, whose cluster loses its disks and begins from its store."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sparklog.node.remote_log.machine.manifest_encoding import decode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from tests.cluster import LocalCluster, wait_for
from tests.spark.sessions import spark_session

TIMEOUT_S = 60
RECORDS = 300
TOPICS = ("source", "target")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]") as session:
        yield session


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    return tmp_path / "disks"


def cluster_over(bucket: Path, disks: Path) -> LocalCluster:
    """Return a cluster with empty disks."""
    shutil.rmtree(disks, ignore_errors=True)
    disks.mkdir()
    config = {
        "sparklog.remote.uri": bucket.as_uri(),
        "sparklog.remote.max.lag.ms": "200",
        "sparklog.remote.metadata.lag.ms": "100",
    }
    return LocalCluster(1, config, directory=disks)


def create_topics(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
        created.result(TIMEOUT_S)


def write(cluster: LocalCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce("source", str(number).encode())
    assert producer.flush(TIMEOUT_S) == 0


def run(spark: SparkSession, cluster: LocalCluster, checkpoint: Path, **options: str) -> None:
    """Copy what there is from source to target."""
    servers = cluster.bootstrap_servers
    reader = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers)
    rows = (
        reader.option("subscribe", "source").option("startingOffsets", "earliest").options(**options).load()
    )
    query = (
        rows.select("value")
        .writeStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "target")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()


def written(cluster: LocalCluster) -> list[int]:
    """Return the committed values of the target."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("target", 0, 0)])
    values: list[int] = []

    def is_at_end() -> bool:
        message = consumer.poll(1)
        if message is None:
            return False
        if message.error() is not None:
            return True
        values.append(int(message.value() or b""))
        return False

    wait_for(is_at_end, "the end of the target", TIMEOUT_S)
    consumer.close()
    return values


def tiered_end(cluster: LocalCluster, bucket: Path, topic: str) -> int:
    name = manifest_name(cluster.image.topics.by_name[topic].topic_id, 0)
    path = bucket / name
    return decode_manifest(name, path.read_bytes()).end_offset if path.exists() else 0


@pytest.mark.long
def test_stream_over_stops_in_order_writes_every_record_once(
    spark: SparkSession, bucket: Path, disks: Path, tmp_path: Path
) -> None:
    """Offsets, the producers' states and the sink's decisions come back with the records."""
    checkpoint, count = tmp_path / "checkpoint", 0
    for life in range(3):
        with cluster_over(bucket, disks) as cluster:
            if life == 0:
                create_topics(cluster)
            run(spark, cluster, checkpoint)
            assert written(cluster) == list(range(count))
            write(cluster, range(count, count + RECORDS))
            run(spark, cluster, checkpoint)
            write(cluster, range(count + RECORDS, count + 2 * RECORDS))
            count += 2 * RECORDS
            cluster.copy_all()


@pytest.mark.long
def test_stream_over_a_kill_tells_of_its_loss_and_doubles_nothing(
    spark: SparkSession, bucket: Path, disks: Path, tmp_path: Path
) -> None:
    """Its checkpoint is further than the source; what was in the bucket is in the target once."""
    checkpoint = tmp_path / "checkpoint"
    with cluster_over(bucket, disks) as cluster:
        create_topics(cluster)
        write(cluster, range(RECORDS))
        run(spark, cluster, checkpoint)
        wait_for(
            lambda: all(tiered_end(cluster, bucket, topic) >= RECORDS for topic in TOPICS),
            "copies",
            TIMEOUT_S,
        )
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        entry = ConfigEntry("remote.log.copy.disable", "true", incremental_operation=AlterConfigOpType.SET)
        resources = [
            ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in TOPICS
        ]
        for altered in admin.incremental_alter_configs(resources).values():
            altered.result(TIMEOUT_S)
        ends = {topic: tiered_end(cluster, bucket, topic) for topic in TOPICS}
        write(cluster, range(RECORDS, 2 * RECORDS))
        run(spark, cluster, checkpoint)
        assert written(cluster) == list(range(2 * RECORDS))
        assert {topic: tiered_end(cluster, bucket, topic) for topic in TOPICS} == ends
        cluster.kill(0)
    with cluster_over(bucket, disks) as cluster:
        assert written(cluster) == list(range(RECORDS))
        with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
            run(spark, cluster, checkpoint)
        run(spark, cluster, checkpoint, failOnDataLoss="false")
        write(cluster, range(2 * RECORDS, 3 * RECORDS))
        run(spark, cluster, checkpoint, failOnDataLoss="false")
        assert written(cluster) == [*range(RECORDS), *range(2 * RECORDS, 3 * RECORDS)]
