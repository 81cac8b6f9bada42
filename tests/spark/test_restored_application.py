"""An application whose log outlives it in an object store: the next one goes on over the same URI."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import sparklog
from sparklog.hosting import StartError
from sparklog.node.remote_log.machine.ownership import OWNER_NAME, decode_owner
from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.user.dataframe import announced_address
from tests.cluster import LocalCluster, wait_for
from tests.spark.sessions import spark_session

RECORDS = 200


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[6]") as session:
        yield session


def config(bucket: Path) -> dict[str, str]:
    return {"sparklog.remote.uri": f"file://{bucket}"}


def consume(bootstrap_servers: str, count: int) -> list[str]:
    """Return the values of the group's next records, which are committed then."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["events"])
    values: list[str] = []

    def is_read() -> bool:
        for message in consumer.consume(count - len(values), 0.5):
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
        return len(values) == count

    wait_for(is_read, f"{count} records")
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def test_application_goes_on_where_the_one_before_has_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """Without directories of its own each starts with empty disks; the URI is all that they share."""
    with sparklog.start(spark, config=config(tmp_path)) as cluster:
        cluster_id = cluster.cluster_id
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("events", 1, 3)])["events"].result(10)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce("events", str(number).encode())
        assert producer.flush(30) == 0
        assert consume(cluster.bootstrap_servers, 50) == [str(number) for number in range(50)]
    assert decode_owner((tmp_path / OWNER_NAME).read_bytes()).is_stopped
    with sparklog.start(spark, config=config(tmp_path)) as cluster:
        assert cluster.cluster_id == cluster_id
        rest = consume(cluster.bootstrap_servers, RECORDS - 50)
        assert rest == [str(number) for number in range(50, RECORDS)]


@pytest.mark.long
def test_queries_of_the_application_read_history_from_its_object_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They name no store: the driver announces it. Of another session, too, and for streams."""
    settings = {**config(tmp_path), "sparklog.remote.max.lag.ms": "200", "num.partitions": "1"}
    with sparklog.start(spark, racks=1, config=settings):
        written = spark.range(RECORDS, numPartitions=1).selectExpr("CAST(id AS STRING) AS value")
        written.write.format("sparklog").option("topic", "history").mode("append").save()
        wait_for(lambda: list(tmp_path.glob("segments/history-*/0/*.parquet")), "the records are copied")
        announced = announced_address()
        assert announced is not None
        assert announced.store == StoreLocation.of(f"file://{tmp_path}", {})
        reader = spark.newSession().read.format("sparklog").option("subscribe", "history")
        through_brokers = reader.option("remoteRead", "false").load().collect()
        assert reader.option("remoteRead", "auto").load().collect() == through_brokers
        assert [int(row.value) for row in through_brokers] == list(range(RECORDS))
        stream = spark.readStream.format("sparklog").option("subscribe", "history")
        query = (
            stream.option("startingOffsets", "earliest")
            .load()
            .writeStream.format("memory")
            .queryName("history")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert spark.table("history").collect() == through_brokers


def test_start_over_a_living_application_is_refused_with_its_address(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Both would write to one prefix, and contradict each other."""
    living = LocalCluster(1, config(tmp_path))
    try:
        living.controller.start()
        wait_for(lambda: living.controller.owner_epoch, "the ownership of the living application")
        address = living.controller.bootstrap_servers
        with pytest.raises(StartError, match=f"another application, which runs at {address}"):
            sparklog.start(spark, config=config(tmp_path))
    finally:
        living.stop()
