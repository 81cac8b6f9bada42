"""A topic as a table, and the usual job that makes one: `python -m benchmarks.tables [--scale N]`.

The usual job is a Spark stream that copies a topic into Parquet (`trigger(availableNow=True)`, one batch: the
cheapest form of it). A topic with `sparklog.table.enable` needs none, since its files in the object store are
the table's. Both begin with the same records of 1 KB on brokers' disks. Measured are

- the CPU of all processes that take part: brokers, driver and controller for both, and for the job its
  running Spark session with its workers, whose start is not counted;
- the bytes of the table, and of all that lies beside it: metadata, manifests, the stream's checkpoint.

The tier is counted as if it were there for the table alone, which is the worst case for it: where a topic has
a tier anyway, the table costs its commits and nothing else (`benchmarks.tiering` has the price of the tier).
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession

from benchmarks.clusters import ClusterUnderTest, cpu_s, sparklog_cluster
from benchmarks.dataframes import spark_session
from benchmarks.tiering import PARTITIONS, VALUE_BYTES, Writer

RECORDS: Final = 200_000
"""Of each topic, for a scale of 1."""
ROUNDS: Final = 3
"""After a first one, in which the JVM compiles what it runs."""
COPY_DISABLE: Final = "remote.log.copy.disable"
TABLE: Final = {"remote.storage.enable": "true", "sparklog.table.enable": "true", COPY_DISABLE: "true"}
NO_TABLE: Final = {"remote.storage.enable": "false"}
SETTINGS: Final = {"sparklog.remote.max.lag.ms": "5000", "sparklog.table.commit.interval.ms": "5000"}
TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.5


class Cost(NamedTuple):
    cpu_s: float
    megabytes: float


class Places:
    """Where the store, the catalogue, the table's metadata and the job's copies lie."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store"
        self.copies = directory / "copies"
        self._directory = directory
        for each in (self.store, self.copies):
            each.mkdir()

    @property
    def catalog(self) -> dict[str, str]:
        return {"uri": f"sqlite:///{self._directory}/catalogue.db", "warehouse": self.store.as_uri()}


def _megabytes(directory: Path) -> float:
    return sum(each.stat().st_size for each in directory.rglob("*") if each.is_file()) / 1e6


def _rows(catalog: dict[str, str], table: str) -> int:
    """Return the rows of the newest snapshot, by the metadata of its files."""
    try:
        files = load_catalog("sparklog", **catalog).load_table(table).scan().plan_files()
    except NoSuchTableError:
        return 0
    return sum(each.file.record_count for each in files)


def _copied(spark: SparkSession, cluster: ClusterUnderTest, topic: str, directory: Path) -> Cost:
    """Return the cost of the usual job."""
    before_s = cpu_s(psutil.Process())  # of this process and of all that it has started, the cluster among it
    records = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        records.writeStream.format("parquet")
        .option("path", str(directory / "table"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Cost(cpu_s(psutil.Process()) - before_s, _megabytes(directory))


def _committed(cluster: ClusterUnderTest, topic: str, records: int, places: Places) -> Cost:
    """Return the cost of copies to the store and commits, from when they may begin."""
    before_s, before_mb = sum(map(cpu_s, cluster.roots())), _megabytes(places.store)
    _enable_copies(cluster, topic)
    deadline_s = time.monotonic() + TIMEOUT_S
    while (rows := _rows(places.catalog, f"topics.{topic}")) < records:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the table of {topic} has {rows} of {records} rows after {TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)
    used_s = sum(map(cpu_s, cluster.roots())) - before_s
    return Cost(used_s, _megabytes(places.store) - before_mb)


def _enable_copies(cluster: ClusterUnderTest, topic: str) -> None:
    entry = ConfigEntry(COPY_DISABLE, "false", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def _measure(cluster: ClusterUnderTest, spark: SparkSession, places: Places, records: int) -> None:
    writer = Writer(cluster)
    found: list[tuple[Cost, Cost]] = []
    for number in range(1 + ROUNDS):
        copied, tabled = f"copied-{number}", f"tabled-{number}"
        cluster.create_topic(copied, PARTITIONS, NO_TABLE)
        cluster.create_topic(tabled, PARTITIONS, TABLE)
        for topic in (copied, tabled):
            writer.write(topic, records)
        job = _copied(spark, cluster, copied, places.copies / str(number))
        table = _committed(cluster, tabled, records, places)
        for topic in (copied, tabled):
            cluster.delete_topic(topic)
        if number:
            found.append((job, table))
    gigabytes = records * VALUE_BYTES / 1e9
    print("| for a gigabyte of values | the usual job | the topic's table | ratio |\n|---|---:|---:|---:|")
    for name, jobs, tables in (
        ("CPU-s", [job.cpu_s for job, _ in found], [table.cpu_s for _, table in found]),
        ("MB written", [job.megabytes for job, _ in found], [table.megabytes for _, table in found]),
    ):
        ratios = [table / job for job, table in zip(jobs, tables, strict=True)]
        medians = [statistics.median(each) / gigabytes for each in (jobs, tables)]
        print(
            f"| {name} | {medians[0]:,.1f} | {medians[1]:,.1f} |"
            f" {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help=f"how many times {RECORDS:,} records a topic")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-tables-") as name:
        places = Places(Path(name))
        catalog = {f"sparklog.table.catalog.{key}": value for key, value in places.catalog.items()}
        settings = {**SETTINGS, "sparklog.remote.uri": places.store.as_uri(), **catalog}
        with sparklog_cluster(settings=settings) as cluster:
            spark = spark_session("sparklog")
            try:
                _measure(cluster, spark, places, int(RECORDS * options.scale))
            finally:
                spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
