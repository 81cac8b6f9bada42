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

address, directory, jars = sys.argv[1:]
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
for formats in (("kafka", "sparklog", "kafka"), ("sparklog", "kafka", "sparklog")):
    topic, checkpoint, written, batches = formats[0], f"{directory}/{formats[0]}", 0, {}

    def take(batch, batch_id, batches=batches):
        batches[batch_id] = [int(row.value) for row in batch.collect()]

    for name in formats:
        # Two batches: the end of the very first one is not for the other format (docs/streaming.md).
        for _ in range(2):
            for number in range(written, written + 6):
                producer.produce(topic, str(number).encode(), partition=number % 3)
            written += 6
            assert producer.flush(30) == 0
            rows = spark.readStream.format(name).option("kafka.bootstrap.servers", address)
            rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()
            writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
            assert writer.trigger(availableNow=True).start().awaitTermination(60)
    streamed = sorted(number for batch in batches.values() for number in batch)
    assert streamed == list(range(written)), (formats, batches)
spark.stop()
"""


@pytest.mark.skipif(not maven_at_hand(), reason="Spark's Kafka connector is fetched with Maven")
def test_stream_goes_on_where_the_other_format_stopped(tmp_path: Path) -> None:
    """Every record once, whichever format began, in a JVM that was started with the connector."""
    with LocalCluster(brokers=1) as cluster:
        for topic in ("kafka", "sparklog"):
            create_topic(cluster.bootstrap_servers, topic, 3, replication_factor=1)
        run_application(APPLICATION, tmp_path, cluster.bootstrap_servers, str(tmp_path), fetch_connector())
