"""Spark's own Kafka connector and our data source side by side, in a session of its own.

    python -m tests.compat.spark_connector_session BOOTSTRAP_SERVERS JARS RESULTS

Run as a program because a JVM takes the connector's jars only when it starts. It leaves the pickled
fields of an `Exchange` in the file RESULTS; `test_spark_connector` says what must be in it.
"""

import pickle
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_millis

from sparklog.user.dataframe import register
from tests.spark.sessions import spark_session

SPARKLOG: Final = "sparklog"
CONNECTOR: Final = "kafka"
FORMATS: Final = (SPARKLOG, CONNECTOR)
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = 3
RECORDS_A_CODEC: Final = 50
START_MS: Final = 1_357_016_400_000
TOPIC: Final = {SPARKLOG: "of-sparklog", CONNECTOR: "of-connector"}
"""Which topic each format writes."""
STREAMED: Final = "streamed"
MOVED: Final = {SPARKLOG: "began-with-sparklog", CONNECTOR: "began-with-connector"}
"""Which topic a stream reads that a format has begun, and the other one, and then the first, go on with."""
MOVED_RECORDS_A_BATCH: Final = 6

READER: Final = {
    "includeHeaders": "true",
    "kafka.fetch.max.wait.ms": "20",
}
"""A short wait, since the connector asks for offsets behind a fetch that has nothing more to come."""

Record: TypeAlias = tuple[Any, ...]
"""topic, partition, offset, key, value, headers, timestamp in milliseconds, timestamp type"""

_NAMED: Final = f'{{"{TOPIC[SPARKLOG]}": {{"0": %s, "1": %s, "2": %s}}}}'
READS: Final[Mapping[str, Mapping[str, str]]] = {
    "a pattern in the name": {"subscribePattern": "-sparkl"},
    "assigned partitions": {"assign": f'{{"{TOPIC[SPARKLOG]}": [0, 2]}}'},
    "between offsets": {
        "subscribe": TOPIC[SPARKLOG],
        "startingOffsets": _NAMED % (5, -2, 7),
        "endingOffsets": _NAMED % (25, 30, -1),
    },
    "between timestamps": {
        "subscribe": TOPIC[SPARKLOG],
        "startingTimestamp": str(START_MS + 10),
        "endingTimestamp": str(START_MS + 40),
    },
    "between timestamps by partition": {
        "subscribe": TOPIC[SPARKLOG],
        "startingOffsetsByTimestamp": _NAMED % (START_MS, START_MS + 20, START_MS + 5),
        "endingOffsetsByTimestamp": _NAMED % (START_MS + 20, START_MS + 40, START_MS + 30),
    },
    "past the last timestamp": {
        "subscribe": TOPIC[SPARKLOG],
        "startingTimestamp": str(START_MS * 2),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "many tasks": {"subscribe": TOPIC[SPARKLOG], "minPartitions": "5"},
}
"""Ways to say what to read; each must mean the same to both formats."""
REFUSED: Final[Mapping[str, Mapping[str, str]]] = {
    "no timestamp so late": {"subscribe": TOPIC[SPARKLOG], "startingTimestamp": str(START_MS * 2)},
    "offsets of some partitions": {
        "subscribe": TOPIC[SPARKLOG],
        "startingOffsets": f'{{"{TOPIC[SPARKLOG]}": {{"0": 1}}}}',
    },
}
"""Reads that both formats must refuse; few, since a refusal costs a Python worker."""


@dataclass
class Exchange:
    """What the session saw."""

    schemas: dict[str, str] = field(default_factory=dict)
    """Of each format, with headers."""
    rows: dict[tuple[str, str], list[Record]] = field(default_factory=dict)
    """What a format (second) read of the topic that a format (first) wrote."""
    reads: dict[tuple[str, str], list[Record]] = field(default_factory=dict)
    """What a format (second) read when asked in one of the ways of `READS` (first)."""
    refusals: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """What a format (second) said to what is in `REFUSED` (first); None if it read on."""
    streamed: list[Record] = field(default_factory=list)
    """What the connector streamed from our topic to another, read by us."""
    moved: dict[str, list[list[int]]] = field(default_factory=dict)
    """The batches of each stream of `MOVED`, by its first format."""


def source_rows(spark: SparkSession, codec: str) -> DataFrame:
    """Return rows to write: keys in turn, a null value, headers with a null, no headers at all."""
    return spark.range(RECORDS_A_CODEC).selectExpr(
        f"cast(concat('{codec}-', id % 7) as binary) as key",
        f"if(id = 3, null, cast(concat('{codec}-', repeat('x', id), id) as binary)) as value",
        "if(id % 2 = 0, null, array("
        "named_struct('key', 'n', 'value', cast(cast(id as string) as binary)),"
        "named_struct('key', 'none', 'value', cast(null as binary)))) as headers",
        f"timestamp_millis({START_MS} + id) as timestamp",
    )


def records(rows: DataFrame) -> list[Record]:
    """Return the rows by topic, partition and offset."""
    columns = ["topic", "partition", "offset", "key", "value", "headers"]
    return sorted(
        tuple(
            bytes(value)
            if isinstance(value, bytearray)
            else tuple((header.key, header.value and bytes(header.value)) for header in value)
            if isinstance(value, list)
            else value
            for value in row
        )
        for row in rows.select(*columns, unix_millis("timestamp"), "timestampType").collect()
    )


def moved(spark: SparkSession, bootstrap_servers: str, first: str, checkpoint: str) -> list[list[int]]:
    """Return the batches of a stream over one checkpoint, in which the formats take turns."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    batches: dict[int, list[int]] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        batches[batch_id] = sorted(int(row.value) for row in batch.collect())

    (second,) = set(FORMATS) - {first}
    # Twice the first: the end of the very first batch is not for the other format (docs/streaming.md).
    for turn, name in enumerate((first, first, second, first)):
        for number in range(turn * MOVED_RECORDS_A_BATCH, (turn + 1) * MOVED_RECORDS_A_BATCH):
            producer.produce(MOVED[first], str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        source = spark.readStream.format(name).option("kafka.bootstrap.servers", bootstrap_servers)
        rows = source.options(**READER).options(subscribe=MOVED[first], startingOffsets="earliest").load()
        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
    return [batches[batch_id] for batch_id in sorted(batches)]


def main(bootstrap_servers: str, jars: str, results: str) -> None:
    """Write and read with both formats; leave what was seen in `results`."""
    seen = Exchange()
    # Compiled once is enough for a session that is so short.
    quick_start = "-XX:TieredStopAtLevel=1"
    with spark_session("local[2]", spark_jars=jars, spark_driver_extraJavaOptions=quick_start) as spark:
        register(spark)
        cluster = {"kafka.bootstrap.servers": bootstrap_servers}

        def read(name: str, options: Mapping[str, str]) -> DataFrame:
            return spark.read.format(name).options(**cluster, **READER, **options).load()

        for name in FORMATS:
            seen.schemas[name] = read(name, {"subscribe": TOPIC[name]}).schema.simpleString()
            for codec in CODECS:
                sink = source_rows(spark, codec).coalesce(1).write.format(name).options(**cluster)
                sink.options(**{"kafka.compression.type": codec, "topic": TOPIC[name]}).mode("append").save()
        for name in FORMATS:
            for writer in FORMATS:
                seen.rows[writer, name] = records(read(name, {"subscribe": TOPIC[writer]}))
            for way, options in READS.items():
                seen.reads[way, name] = records(read(name, options))
            for way, options in REFUSED.items():
                try:
                    records(read(name, options))
                    seen.refusals[way, name] = None
                except (PySparkException, Py4JJavaError) as error:
                    seen.refusals[way, name] = str(error)
        with tempfile.TemporaryDirectory() as checkpoints:
            source = (
                spark.readStream.format(CONNECTOR)
                .options(**cluster, **READER)
                .options(subscribe=TOPIC[SPARKLOG], startingOffsets="earliest", maxOffsetsPerTrigger="150")
            )
            rows = source.load().select("key", "value", "headers", "partition")
            stream = (
                rows.writeStream.format(CONNECTOR)
                .options(**cluster)
                .options(topic=STREAMED, checkpointLocation=checkpoints)
            )
            stream.trigger(availableNow=True).start().awaitTermination()
            seen.streamed = records(read(SPARKLOG, {"subscribe": STREAMED}))
        for first in FORMATS:
            with tempfile.TemporaryDirectory() as checkpoint:
                seen.moved[first] = moved(spark, bootstrap_servers, first, checkpoint)
    Path(results).write_bytes(pickle.dumps(vars(seen)))


if __name__ == "__main__":
    main(*sys.argv[1:])
