"""A checkpoint is good for this format and for Spark's Kafka connector: users move over, and back."""

from pathlib import Path

import pytest

from benchmarks.java_libraries import fetch_connector, maven_at_hand
from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic
from tests.spark.applications import run_application

APPLICATION = """
import sys

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from sparklog.dataframe import register

address, checkpoint, jars, *formats = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
register(spark, address)
producer = Producer({"bootstrap.servers": address})
batches = {}


def take(batch, batch_id):
    batches[batch_id] = [int(row.value) for row in batch.collect()]


written = 0
for name in formats:
    # Two batches: the end of the very first one is not for the other format (docs/streaming.md).
    for _ in range(2):
        for number in range(written, written + 6):
            producer.produce("t", str(number).encode(), partition=number % 3)
        written += 6
        assert producer.flush(30) == 0
        rows = spark.readStream.format(name).option("kafka.bootstrap.servers", address)
        rows = rows.option("subscribe", "t").option("startingOffsets", "earliest").load()
        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
assert sorted(number for batch in batches.values() for number in batch) == list(range(written)), batches
spark.stop()
"""


@pytest.mark.skipif(not maven_at_hand(), reason="Spark's Kafka connector is fetched with Maven")
@pytest.mark.parametrize("formats", [("kafka", "sparklog", "kafka"), ("sparklog", "kafka", "sparklog")])
def test_stream_goes_on_where_the_other_format_stopped(formats: tuple[str, ...], tmp_path: Path) -> None:
    """Every record once, in a JVM that was started with the connector."""
    with LocalCluster(brokers=1) as cluster:
        create_topic(cluster.bootstrap_servers, "t", 3, replication_factor=1)
        checkpoint = tmp_path / "checkpoint"
        run_application(
            APPLICATION, tmp_path, cluster.bootstrap_servers, str(checkpoint), fetch_connector(), *formats
        )
