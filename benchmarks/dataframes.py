"""A DataFrame read, written or streamed, in a Spark session of its own (local[2]).

Run as a program, one a side and case, so that neither side warms the other's JVM: `connector` is Spark's
own Kafka connector, `sparklog` this project's source. It runs once for each line on its standard input, which
names the topic, answers with a line that has the figures, and ends with its input.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import dataframe_writes
from benchmarks.dataframe_writes import batch_ms, rows_per_s
from benchmarks.java_libraries import fetch_connector
from sparklog.user import dataframe

FORMATS = {"connector": "kafka", "sparklog": "sparklog"}
ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""As docs/dataframes.md recommends; the connector has no Arrow, and gets them too."""
READS = ("read", "stream", "small-batch", "noticed", "idle")
WRITES = ("write", "sink-stream", "sink-small-batch", "sink-batch-atomic", "read-isolation")
END_TIMEOUT_S = 60.0
ANSWER = "figures "
"""Before the figures: Spark's own programs print to standard output too."""
BATCH_ROWS = 1_000
BATCHES = 5
TRIGGER = "1 second"
"""Long enough that all rows of a small batch are there when it begins."""
IDLE_S = 10.0
LONE_RECORDS = 10
PAUSE_S = 0.25
"""Long enough that the query waits again."""
BEFORE_BATCH_MS = ("walCommit", "queryPlanning", "getBatch")
"""What Spark itself does between learning of new offsets and calling for the batch."""
POLL_S = 0.01


@contextlib.contextmanager
def session(
    side: str, operation: str, bootstrap_servers: str, topic: str, *, rows: int, record_bytes: int
) -> Iterator[Callable[[str], Sequence[float]]]:
    """Start this module for one side and operation.

    Each call runs it once and returns its figures; it may name another topic, if the operation is to write.
    """
    with (
        tempfile.TemporaryFile("w+") as errors,
        # Of the process that is killed at a bound: its files go all the same, though its JVM may still write.
        tempfile.TemporaryDirectory(prefix="benchmark-session-", ignore_cleanup_errors=True) as directory,
    ):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.dataframes", side, operation, bootstrap_servers, topic),
                *(str(rows), str(record_bytes)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TMPDIR": directory},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def figures(topic: str) -> Sequence[float]:
            with contextlib.suppress(BrokenPipeError):
                print(topic, file=stdin, flush=True)
            try:
                for line in stdout:
                    if line.startswith(ANSWER):
                        return [float(figure) for figure in line.removeprefix(ANSWER).split()]
            except BaseException:  # the bound of the case: the session ends in the middle of its work
                process.kill()
                raise
            errors.seek(0)
            raise RuntimeError(f"{side} {operation} failed:\n{errors.read()[-4000:]}")

        try:
            yield figures
        finally:
            with contextlib.suppress(BrokenPipeError):
                stdin.close()
            try:
                process.wait(END_TIMEOUT_S)
            finally:
                process.kill()
                process.wait()
                stdout.close()


def spark_session(side: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "4g")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
    builder = builder.config("spark.driver.extraJavaOptions", ARROW_OPTIONS)
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")  # docs/dataframes.md
    if side == "connector":
        builder = builder.config("spark.jars", fetch_connector())
    spark = builder.getOrCreate()
    if side == "sparklog":
        dataframe.register(spark)
    return spark


def _read(spark: SparkSession, source: str, options: Mapping[str, str], rows: int) -> Callable[[], float]:
    """Rows a second of a batch read."""
    reader = spark.read.format(source).options(**options)
    return lambda: rows_per_s(rows, lambda: reader.load().write.format("noop").mode("overwrite").save())


def _stream(spark: SparkSession, source: str, options: Mapping[str, str], rows: int) -> Callable[[], float]:
    """Rows a second of a query that runs, in batches of `rows`: of all but the first, in which it starts."""
    options = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
    reader = spark.readStream.format(source).options(**options)

    def measured() -> float:
        query = reader.load().writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        done = [each for each in query.recentProgress if each.numInputRows][1:]
        return 1000 * sum(each.numInputRows for each in done) / sum(map(batch_ms, done))

    return measured


def _small_batches(spark: SparkSession, source: str, options: Mapping[str, str]) -> Callable[[], float]:
    """Milliseconds of a running query's micro-batch of `BATCH_ROWS`, the median of `BATCHES`."""
    producer = Producer({"bootstrap.servers": options["kafka.bootstrap.servers"], "acks": "all"})
    query = _running(spark, source, options, processingTime=TRIGGER)

    def one_ms() -> float:
        for number in range(BATCH_ROWS):
            producer.produce(options["subscribe"], bytes(100), partition=number % 3)
        producer.flush()
        seen = 0
        last = query.lastProgress
        since = -1 if last is None else last.batchId
        while seen < BATCH_ROWS:
            time.sleep(POLL_S)
            done = [each for each in query.recentProgress if each.batchId > since and each.numInputRows]
            seen = sum(each.numInputRows for each in done)
        return max(map(batch_ms, done))

    return lambda: statistics.median(one_ms() for _ in range(BATCHES))


def _noticed(spark: SparkSession, source: str, options: Mapping[str, str]) -> Callable[[], float]:
    """Milliseconds from a record's acknowledgement to a batch with it, without what Spark does; the median.

    Of `LONE_RECORDS` that come one by one to a query without a trigger.
    """
    producer = Producer({"bootstrap.servers": options["kafka.bootstrap.servers"], "acks": "all"})
    called: dict[int, float] = {}
    rows = spark.readStream.format(source).options(**options).load()
    writer = rows.writeStream.foreachBatch(lambda _, batch_id: called.update({batch_id: time.time()}))
    query = writer.start()
    while not called:
        time.sleep(POLL_S)

    def waited_ms() -> float:
        before = max(called)
        producer.produce(options["subscribe"], bytes(100))
        producer.flush()
        acknowledged_s = time.time()
        while True:
            last = query.lastProgress
            # All that is kept is read once only: it comes as text, and the query shares these cores.
            for each in query.recentProgress if last and last.batchId > before else ():
                # Not by its rows: what a batch is called with is counted only if it is computed.
                if each.batchId > before and each.batchId in called:
                    own_ms = sum(each.durationMs.get(part, 0) for part in BEFORE_BATCH_MS)
                    return max(0.0, 1000 * (called[each.batchId] - acknowledged_s) - own_ms)
            time.sleep(POLL_S)

    def measured() -> float:
        waits = []
        for _ in range(LONE_RECORDS):
            time.sleep(PAUSE_S)
            waits.append(waited_ms())
        return statistics.median(waits)

    return measured


def _idle(spark: SparkSession, source: str, options: Mapping[str, str]) -> Callable[[], float]:
    """CPU milliseconds a second of everything in this session while a query has nothing to do."""
    _running(spark, source, options)

    def cpu_s() -> float:
        own = psutil.Process()
        times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def measured() -> float:
        before_s = cpu_s()
        time.sleep(IDLE_S)
        return 1000 * (cpu_s() - before_s) / IDLE_S

    return measured


def _running(spark: SparkSession, source: str, options: Mapping[str, str], **trigger: str) -> StreamingQuery:
    """Start a query that reads what comes; return it when it has begun."""
    writer = spark.readStream.format(source).options(**options).load().writeStream.format("noop")
    query = (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[call-overload]
    while query.lastProgress is None and query.isActive:
        time.sleep(POLL_S)
    return cast(StreamingQuery, query)


def _figures(spark: SparkSession, arguments: argparse.Namespace) -> Callable[[str], Sequence[float]]:
    """Return what runs the operation once; where it reads, from the topic of the command line."""
    source, rows, record_bytes = FORMATS[arguments.side], arguments.rows, arguments.record_bytes
    servers = {"kafka.bootstrap.servers": arguments.bootstrap_servers}
    options = {**servers, "subscribe": arguments.topic}
    match arguments.operation:
        case "read":
            run = _read(spark, source, options, rows)
        case "stream":
            run = _stream(spark, source, options, rows)
        case "small-batch":
            run = _small_batches(spark, source, options)
        case "noticed":
            run = _noticed(spark, source, options)
        case "idle":
            run = _idle(spark, source, options)
        case "sink-stream":
            return dataframe_writes.stream(spark, source, servers, rows, record_bytes)
        case "sink-small-batch":
            return dataframe_writes.small_batches(spark, servers)
        case "sink-batch-atomic":
            return dataframe_writes.batch_atomicity(spark, servers, rows, record_bytes)
        case "read-isolation":
            return dataframe_writes.isolation(spark, servers, rows, record_bytes)
        case _:
            return dataframe_writes.batch(spark, source, servers, rows, record_bytes)
    return lambda _: [run()]


def main() -> None:
    """Run what the command line says once for each line of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=sorted(FORMATS))
    parser.add_argument("operation", choices=(*READS, *WRITES))
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("rows", type=int)
    parser.add_argument("record_bytes", type=int)
    arguments = parser.parse_args()
    spark = spark_session(arguments.side)
    figures = _figures(spark, arguments)
    for line in sys.stdin:
        print(ANSWER + " ".join(map(str, figures(line.strip()))), flush=True)
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
