"""The application whose classes are archived: it uses a little of every feature of a cluster and its clients.

`benchmarks/class_archive/archive.py` runs it in a driver that writes the archive when it ends. An archive
holds the classes of one JVM, and must serve drivers and executors. So the work is done with executors, and at
last the driver loads the classes that only the executors' logs name.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

import sparklog

STANDALONE_MAINS = (
    "org.apache.spark.deploy.Client",
    "org.apache.spark.deploy.master.Master",
    "org.apache.spark.deploy.worker.DriverWrapper",
    "org.apache.spark.deploy.worker.Worker",
)
LOADED = re.compile(r"([\w.$]+) source: (?:file|jrt|shared)")
"""A line of -Xlog:class+load, undecorated; classes made at run time have other names or sources."""
GENERATED = re.compile(r"\$\$Lambda|\$Proxy|GeneratedMethodAccessor|GeneratedConstructorAccessor")


def main(class_logs: Path) -> None:
    """Work; the JVMs log the classes that they load into `class_logs`."""
    with _session("local-cluster[2,1,512]", **_broker_resource(class_logs)) as spark:
        _use(spark)
    with _session("local[2]") as spark:
        _load_missing(spark, class_logs)


@contextlib.contextmanager
def _session(master: str, **properties: str) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master(master)
    for name, value in properties.items():
        builder = builder.config(name.replace("_", "."), value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _broker_resource(scratch: Path) -> dict[str, str]:
    """Let workers and executors discover their resources: for that alone they load a library."""
    script = scratch / "discover"
    script.write_text('#!/bin/sh\necho \'{"name": "broker", "addresses": ["0"]}\'\n')
    script.chmod(0o755)
    return {
        f"spark_{who}_resource_broker_{what}": value
        for who in ("worker", "executor")
        for what, value in (("amount", "1"), ("discoveryScript", str(script)))
    }


def _use(spark: SparkSession) -> None:
    with sparklog.start(spark, racks=1):
        table = pa.table({"at": ["2013-07-01 10:00:00"] * 100, "key": ["a", "b"] * 50, "number": range(100)})
        rows = spark.createDataFrame(table)
        records = rows.select(
            "key",
            F.to_json(F.struct(*rows.columns)).alias("value"),
            F.to_timestamp("at").alias("timestamp"),
        ).repartition(2)
        records.persist()
        records.agg(F.count("value"), F.sum(F.crc32(F.col("value").cast("binary")))).first()
        records.write.format("sparklog").option("topic", "training").mode("append").save()
        topic = spark.read.format("sparklog").option("subscribe", "training").load()
        parsed = F.from_json(F.col("value").cast("string"), "key string, number long").alias("row")
        (
            topic.where(F.unix_millis("timestamp") > 0)
            .select(parsed)
            .groupBy("row.key")
            .agg(F.count("*"), F.round(F.avg("row.number"), 6))
            .orderBy("key")
            .collect()
        )


def _load_missing(spark: SparkSession, class_logs: Path) -> None:
    virtual_machine: Any = spark.sparkContext._jvm
    loader = virtual_machine.java.lang.ClassLoader.getSystemClassLoader()
    driver, executors = _classes(class_logs.glob("driver-*")), _classes(class_logs.glob("executor-*"))
    for name in sorted(executors - driver) + list(STANDALONE_MAINS):
        # Ignores classes made at run time under an ordinary name, and those missing here.
        with contextlib.suppress(Py4JJavaError):
            virtual_machine.java.lang.Class.forName(name, False, loader)


def _classes(logs: Iterator[Path]) -> set[str]:
    found = set()
    for log in logs:
        with log.open() as lines:
            found |= {match[1] for line in lines if (match := LOADED.match(line))}
    return {name for name in found if not GENERATED.search(name)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
