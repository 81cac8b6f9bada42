"""Rates of union reads: `python -m benchmarks.table_reads [--scale N]`.

A cluster with a directory as its store has two topics, of records of 100 bytes and of 1 KB, of which the
brokers' disks have only the end. A Spark session (local[2]) reads each through brokers (`remoteRead=false`)
and from the store, and as many rows of the same columns from a source in Python that repeats one batch: that
is the limit of such sources, since Spark takes their rows one by one. The bars are ratios of the first two
rates, in rows a second; what the limit itself would reach is printed beside them, and excuses nothing. The
fourth way is around that limit: the topics are tables, whose files Spark's own Parquet reader reads.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.clusters import ClusterUnderTest, sparklog_cluster
from benchmarks.dataframe_writes import rows_per_s
from benchmarks.dataframes import spark_session
from benchmarks.remote_reads import wait_until_cut
from sparklog.protocol.records.encode import encode_batches
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, ProducerConfig, parse_bootstrap_servers
from sparklog.user.client.producer import Producer
from sparklog.user.dataframe.schemas import record_schema

ROUNDS: Final = 2
"""After a first one, in which the JVM compiles what it runs."""
TOPIC_BYTES: Final = 500_000_000
"""Of the values of each topic, for a scale of 1."""
PARTITIONS: Final = 2
SEGMENT_BYTES: Final = 64 * 1024 * 1024
SETTINGS: Final = {
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.check.interval.ms": "1000",
    "sparklog.remote.max.lag.ms": "5000",
    "sparklog.table.commit.interval.ms": "5000",
}
BATCH_BYTES: Final = 256 * 1024
PIECE_RECORDS: Final = 50_000
DIGITS: Final = 10
START_MS: Final = 1_700_000_000_000
TABLE_TIMEOUT_S: Final = 120.0


class Case(NamedTuple):
    name: str
    schema: str | None
    run: Callable[[DataFrame], None]
    bars: Mapping[int, float]
    """By bytes of a value: what the rate from the store is asked for to be of that through brokers."""


def _write_nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _count(rows: DataFrame) -> None:
    rows.count()


CASES: Final = (
    Case("all columns", None, _write_nowhere, {100: 2, 1_000: 1}),
    Case("count()", "offset LONG", _count, {100: 10, 1_000: 10}),
    Case(
        "max(offset)", "offset LONG", lambda rows: rows.agg(f.max("offset")).collect(), {100: 10, 1_000: 10}
    ),
    Case("timestamp", "timestamp TIMESTAMP", _write_nowhere, {100: 10, 1_000: 10}),
)


def _fill(cluster: ClusterUnderTest, topic: str, value_bytes: int, records: int) -> None:
    """Write records of which half of the value can be compressed."""
    noise = np.random.default_rng(7).integers(0, 256, 1 << 20, dtype=np.uint8)
    half = value_bytes // 2
    noises = np.lib.stride_tricks.sliding_window_view(noise, half)
    powers = 10 ** np.arange(DIGITS)[::-1]
    servers = parse_bootstrap_servers(cluster.bootstrap_servers)
    with ClusterClient(ClientConfig(bootstrap_servers=servers)) as client:
        producer = Producer(client, ProducerConfig())
        producer.start()
        producer.partition_count(topic)
        for first in range(0, records, PIECE_RECORDS):
            numbers = np.arange(first, min(first + PIECE_RECORDS, records))
            values = np.full((len(numbers), value_bytes), ord("0"), dtype=np.uint8)
            values[:, :half] = noises[numbers * 7_919 % len(noises)]
            values[:, -DIGITS:] += (numbers[:, None] // powers % 10).astype(np.uint8)
            for partition in range(PARTITIONS):
                where = TopicPartition(topic, partition)
                for batch in encode_batches(
                    value=_binaries(values[partition::PARTITIONS]),
                    default_timestamp_ms=START_MS + first,
                    batch_size_bytes=BATCH_BYTES,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=producer.next_sequence(where),
                ):
                    producer.send(where, batch.data, batch.record_count)
        producer.flush()


def _binaries(values: "np.ndarray[tuple[int, int], np.dtype[np.uint8]]") -> pa.Array:
    count, width = values.shape
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), count, [None, pa.py_buffer(values.tobytes())]
    ).cast(pa.binary())


class RepeatedBatch(DataSource):
    """A source that computes nothing: each of its tasks gives the same batch over and over."""

    @classmethod
    def name(cls) -> str:
        return "repeated-batch"

    def reader(self, schema: StructType) -> DataSourceReader:
        return RepeatedBatchReader(schema, int(self.options["rows"]), int(self.options["value_bytes"]))


class RepeatedBatchReader(DataSourceReader):
    """`_rows` are those of a task."""

    def __init__(self, schema: StructType, rows: int, value_bytes: int) -> None:
        self._schema = schema
        self._rows = rows // PARTITIONS
        self._value_bytes = value_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from sparklog.spark_versions import arrow_schema

        count = min(32 * 1024, 8 * 1024 * 1024 // self._value_bytes)
        numbers = pa.array(range(count), pa.int64())
        given = {
            "value": pa.array([bytes(self._value_bytes)] * count, pa.binary()),
            "key": pa.nulls(count, pa.binary()),
            "topic": pa.array([f"values-of-{self._value_bytes}"] * count),
        }
        batch = pa.RecordBatch.from_arrays(
            [
                given[field.name] if field.name in given else numbers.cast(field.type)
                for field in arrow_schema(self._schema)
            ],
            schema=arrow_schema(self._schema),
        )
        for first in range(0, self._rows, count):
            yield batch.slice(0, min(count, self._rows - first))


def _measured(spark: SparkSession, options: Mapping[str, str], case: Case, rows: int) -> float:
    reader = spark.read.format(options.get("format", "sparklog")).options(**options)
    reader = reader.schema(case.schema or record_schema(include_headers=False))
    return rows_per_s(rows, lambda: case.run(reader.load()))


def _measured_files(
    spark: SparkSession, files: Sequence[str], columns: StructType, case: Case, rows: int
) -> float:
    """Return the rate of Spark's own reader; `columns` are those of the files but for the headers."""
    names = [each.partition(" ")[0] for each in (case.schema or "").split(",") if each]
    schema = StructType([each for each in columns if not names or each.name in names])
    return rows_per_s(rows, lambda: case.run(spark.read.schema(schema).parquet(*files)))


def _files(catalog: Mapping[str, str], table: str, records: int) -> list[str]:
    """Return the files of a table once it has so many rows."""
    deadline_s = time.monotonic() + TABLE_TIMEOUT_S
    while True:
        with contextlib.suppress(NoSuchTableError):
            files = [
                task.file
                for task in load_catalog("sparklog", **catalog).load_table(table).scan().plan_files()
            ]
            if sum(file.record_count for file in files) == records:
                return [file.file_path for file in files]
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{table} has not {records} rows after {TABLE_TIMEOUT_S:.0f} s")
        time.sleep(1)


def main() -> int:
    """Measure and print the table; fail below a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--scale", type=float, default=1, help=f"how many times {TOPIC_BYTES >> 20} MiB a topic"
    )
    options = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory(prefix="benchmark-store-") as name, contextlib.ExitStack() as stack:
        store = Path(name) / "store"
        store.mkdir()
        catalog = {"uri": f"sqlite:///{name}/catalogue.db", "warehouse": store.as_uri()}
        settings = {f"sparklog.table.catalog.{key}": value for key, value in catalog.items()}
        settings |= {**SETTINGS, "sparklog.remote.uri": store.as_uri()}
        cluster = stack.enter_context(sparklog_cluster(settings=settings))
        topics = {}
        for value_bytes in (100, 1_000):
            topics[value_bytes] = f"values-of-{value_bytes}", int(TOPIC_BYTES * options.scale) // value_bytes
            topic, records = topics[value_bytes]
            config = {"local.retention.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
            cluster.create_topic(topic, PARTITIONS, {**config, "sparklog.table.enable": "true"})
            _fill(cluster, topic, value_bytes, records)
        spark = spark_session("sparklog")
        spark.dataSource.register(RepeatedBatch)
        print(
            "| bytes | read | through brokers, rows/s | from the store, rows/s | ratio | bar |"
            " the limit: a source that computes nothing, rows/s | its ratio | brokers' CPU-s through them |"
            " from the store | the table's files by Spark's own reader, rows/s | ratio |"
        )
        print("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for value_bytes, (topic, records) in topics.items():
            left = 2 * SEGMENT_BYTES // value_bytes
            for partition in range(PARTITIONS):
                wait_until_cut(cluster, TopicPartition(topic, partition), records // PARTITIONS - left)
            ways = [
                {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **more}
                for more in ({"remoteRead": "false"}, {"sparklog.remote.uri": store.as_uri()})
            ]
            files = _files(catalog, f"topics.{topic}", records // PARTITIONS * PARTITIONS)
            columns = spark.read.parquet(*files).drop("headers").schema
            ways.append(
                {"format": RepeatedBatch.name(), "rows": str(records), "value_bytes": str(value_bytes)}
            )
            for case in CASES:
                rates: list[list[float]] = [[], [], []]
                cpu_s = [0.0, 0.0, 0.0]
                measured = [_measured_files(spark, files, columns, case, records) for _ in range(1 + ROUNDS)]
                native = statistics.median(measured[1:])
                for number in range(1 + ROUNDS):
                    for way, given in enumerate(ways):
                        if number == 0:
                            _measured(spark, given, case, records)
                            continue
                        before_s = cluster.brokers_cpu_s()
                        rates[way].append(_measured(spark, given, case, records))
                        cpu_s[way] += cluster.brokers_cpu_s() - before_s
                brokers, union, limit = map(statistics.median, rates)
                bar = case.bars[value_bytes]
                if union < bar * brokers:
                    failures.append(f"{case.name} of {value_bytes} bytes")
                print(
                    f"| {value_bytes} | {case.name} | {brokers:,.0f} | {union:,.0f} | {union / brokers:.1f}"
                    f" | {bar:g} | {limit:,.0f} | {limit / brokers:.1f}"
                    f" | {cpu_s[0] / ROUNDS:.2f} | {cpu_s[1] / ROUNDS:.2f}"
                    f" | {native:,.0f} | {native / brokers:.1f} |",
                    flush=True,
                )
        spark.stop()
    if failures:
        print(f"below the bar: {', '.join(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
