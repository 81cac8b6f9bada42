"""Rows a second of a DataFrame read or write, in a Spark session of its own (local[2]).

Run as a program, one a side and case, so that neither side warms the other's JVM: `connector` is Spark's
own Kafka connector, `sparklog` this project's source. It runs once for each line on its standard input,
answers with a line of rows a second, and ends with its input.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.java_libraries import fetch_connector
from sparklog import dataframe

FORMATS = {"connector": "kafka", "sparklog": "sparklog"}
END_TIMEOUT_S = 60.0
ANSWER = "rows/s "
"""Before each figure: Spark's own programs print to standard output too."""


@contextlib.contextmanager
def session(
    side: str, operation: str, bootstrap_servers: str, topic: str, *, rows: int, record_bytes: int
) -> Iterator[Callable[[], float]]:
    """Start this module for one side and operation; each call runs it once and returns its rows a second."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.dataframes", side, operation, bootstrap_servers, topic),
                *(str(rows), str(record_bytes)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def rows_per_s() -> float:
            with contextlib.suppress(BrokenPipeError):
                print(file=stdin, flush=True)
            for line in stdout:
                if line.startswith(ANSWER):
                    return float(line.removeprefix(ANSWER))
            errors.seek(0)
            raise RuntimeError(f"{side} {operation} failed:\n{errors.read()[-4000:]}")

        try:
            yield rows_per_s
        finally:
            with contextlib.suppress(BrokenPipeError):
                stdin.close()
            try:
                process.wait(END_TIMEOUT_S)
            finally:
                process.kill()
                process.wait()
                stdout.close()


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
    """Run what the command line says once for each line of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=sorted(FORMATS))
    parser.add_argument("operation", choices=("read", "write"))
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("rows", type=int)
    parser.add_argument("record_bytes", type=int)
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

    for _ in sys.stdin:
        started_s = time.monotonic()
        run()
        print(f"{ANSWER}{arguments.rows / (time.monotonic() - started_s)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
