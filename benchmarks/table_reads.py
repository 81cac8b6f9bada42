"""Rates of union reads: `python -m benchmarks.table_reads [--scale N]`.

A cluster with a directory as its store has two topics, of records of 100 bytes and of 1 KB, of which the
brokers' disks have only the end. A Spark session (local[2]) reads each through brokers (`remoteRead=false`)
and from the store. The bars are ratios of the two rates, in rows a second.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.clusters import ClusterUnderTest, sparklog_cluster
from benchmarks.dataframe_writes import rows_per_s
from benchmarks.dataframes import spark_session
from benchmarks.remote_reads import wait_until_cut
from sparklog.protocol.records.encode import encode_batches
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, ProducerConfig, parse_bootstrap_servers
from sparklog.user.client.producer import Producer

ROUNDS: Final = 2
"""After a first one, in which the JVM compiles what it runs."""
TOPIC_BYTES: Final = 400_000_000
"""Of the values of each topic, for a scale of 1."""
PARTITIONS: Final = 2
SEGMENT_BYTES: Final = 64 * 1024 * 1024
SETTINGS: Final = {
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.check.interval.ms": "1000",
    "sparklog.remote.max.lag.ms": "5000",
}
BATCH_BYTES: Final = 256 * 1024
PIECE_RECORDS: Final = 20_000


class Case(NamedTuple):
    name: str
    schema: str | None
    run: Callable[[DataFrame], None]
    bars: Mapping[int, float]
    """By bytes of a value: what the rate from the store is asked for to be of that through brokers."""


def _write_nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _largest_offset(rows: DataFrame) -> None:
    rows.agg(f.max("offset")).collect()


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
    noise = np.random.default_rng(7).bytes(1 << 20)
    half = value_bytes // 2
    servers = parse_bootstrap_servers(cluster.bootstrap_servers)
    with ClusterClient(ClientConfig(bootstrap_servers=servers)) as client:
        producer = Producer(client, ProducerConfig())
        producer.start()
        producer.partition_count(topic)
        for first in range(0, records, PIECE_RECORDS):
            values = [
                noise[at : at + half] + b"%0*d" % (value_bytes - half, number)
                for number in range(first, min(first + PIECE_RECORDS, records))
                for at in (number * 7_919 % (len(noise) - half),)
            ]
            for partition in range(PARTITIONS):
                where = TopicPartition(topic, partition)
                for batch in encode_batches(
                    value=pa.array(values[partition::PARTITIONS], pa.binary()),
                    default_timestamp_ms=1_700_000_000_000 + first,
                    batch_size_bytes=BATCH_BYTES,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=producer.next_sequence(where),
                ):
                    producer.send(where, batch.data, batch.record_count)
        producer.flush()


def _measured(spark: SparkSession, options: Mapping[str, str], case: Case, rows: int) -> float:
    reader = spark.read.format("sparklog").options(**options)
    if case.schema is not None:
        reader = reader.schema(case.schema)
    return rows_per_s(rows, lambda: case.run(reader.load()))


def main() -> int:
    """Measure and print the table; fail below a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--scale", type=float, default=1, help=f"how many times {TOPIC_BYTES >> 20} MiB a topic"
    )
    options = parser.parse_args()
    failures = []
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-store-") as store,
        sparklog_cluster(settings={**SETTINGS, "sparklog.remote.uri": Path(store).as_uri()}) as cluster,
    ):
        topics = {}
        for value_bytes in (100, 1_000):
            topics[value_bytes] = f"values-of-{value_bytes}", int(TOPIC_BYTES * options.scale) // value_bytes
            topic, records = topics[value_bytes]
            limits = {"local.retention.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
            cluster.create_topic(topic, PARTITIONS, limits)
            _fill(cluster, topic, value_bytes, records)
        spark = spark_session("sparklog")
        print(
            "| bytes | read | through brokers, rows/s | from the store, rows/s | ratio | bar |"
            " brokers' CPU-s, through them | from the store |"
        )
        print("|---:|---|---:|---:|---:|---:|---:|---:|")
        for value_bytes, (topic, records) in topics.items():
            left = 2 * SEGMENT_BYTES // value_bytes
            for partition in range(PARTITIONS):
                wait_until_cut(cluster, TopicPartition(topic, partition), records // PARTITIONS - left)
            both = [
                {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **more}
                for more in ({"remoteRead": "false"}, {"sparklog.remote.uri": Path(store).as_uri()})
            ]
            for case in CASES:
                rates: list[list[float]] = [[], []]
                cpu_s = [0.0, 0.0]
                for number in range(1 + ROUNDS):
                    for way, given in enumerate(both):
                        if number == 0:
                            _measured(spark, given, case, records)
                            continue
                        before_s = cluster.brokers_cpu_s()
                        rates[way].append(_measured(spark, given, case, records))
                        cpu_s[way] += cluster.brokers_cpu_s() - before_s
                brokers, union = map(statistics.median, rates)
                bar = case.bars[value_bytes]
                if union < bar * brokers:
                    failures.append(f"{case.name} of {value_bytes} bytes")
                print(
                    f"| {value_bytes} | {case.name} | {brokers:,.0f} | {union:,.0f} | {union / brokers:.1f}"
                    f" | {bar:g} | {cpu_s[0] / ROUNDS:.2f} | {cpu_s[1] / ROUNDS:.2f} |",
                    flush=True,
                )
        spark.stop()
    if failures:
        print(f"below the bar: {', '.join(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
