"""Rows a second of a DataFrame read or write, in a Spark session of its own (local[2]).

Run as a program, once a side, so that neither warms the other's JVM: `connector` is Spark's own Kafka
connector, `sparklog` this project's source. The first of the runs warms up and is not counted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.java_libraries import fetch_connector
from sparklog import dataframe

FORMATS = {"connector": "kafka", "sparklog": "sparklog"}
SUBPROCESS_TIMEOUT_S = 400.0


def rows_per_s(
    side: str, operation: str, bootstrap_servers: str, topic: str, *, rows: int, record_bytes: int, runs: int
) -> float:
    """Run this module for one side and operation; return the median of `runs` warm runs."""
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.dataframes", side, operation, bootstrap_servers, topic),
            *(str(rows), str(record_bytes), str(runs)),
        ],
        capture_output=True,
        text=True,
        timeout=SUBPROCESS_TIMEOUT_S,
        check=False,
    )
    if completed.returncode != 0:
        raise RuntimeError(f"{side} {operation} failed:\n{completed.stderr[-4000:]}")
    return float(json.loads(completed.stdout.strip().splitlines()[-1])["rows_per_s"])


def _session(side: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "4g")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
    if side == "connector":
        builder = builder.config("spark.jars", fetch_connector())
    spark = builder.getOrCreate()
    if side == "sparklog":
        dataframe.register(spark)
    return spark


def _values(spark: SparkSession, rows: int, record_bytes: int) -> DataFrame:
    seed = F.sha2(F.col("id").cast("string"), 512)
    value = F.substring(F.repeat(seed, record_bytes // 128 + 1), 1, record_bytes)
    frame = spark.range(0, rows, 1, 2).select(value.cast("binary").alias("value")).persist()
    frame.count()
    return frame


def main() -> None:
    """Measure what the command line says; print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=sorted(FORMATS))
    parser.add_argument("operation", choices=("read", "write"))
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("rows", type=int)
    parser.add_argument("record_bytes", type=int)
    parser.add_argument("runs", type=int)
    arguments = parser.parse_args()
    spark = _session(arguments.side)
    options = {"kafka.bootstrap.servers": arguments.bootstrap_servers}
    if arguments.operation == "read":
        reader = spark.read.format(FORMATS[arguments.side]).options(**options, subscribe=arguments.topic)

        def run() -> None:
            reader.load().write.format("noop").mode("overwrite").save()
    else:
        values = _values(spark, arguments.rows, arguments.record_bytes)
        writer = values.write.format(FORMATS[arguments.side]).options(**options, topic=arguments.topic)

        def run() -> None:
            writer.mode("append").save()

    seconds = []
    for _ in range(arguments.runs + 1):
        started_s = time.monotonic()
        run()
        seconds.append(time.monotonic() - started_s)
    spark.stop()
    print(json.dumps({"rows_per_s": arguments.rows / statistics.median(seconds[1:])}))


if __name__ == "__main__":
    main()
