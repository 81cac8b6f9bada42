"""DataFrames that are read, written or streamed, in a Spark session of either side (local[2]).

Run as a program, one a side and cluster, so that neither side warms the other's JVM: `connector` is Spark's
own Kafka connector, `sparklog` this project's source. A session serves all cases, since its start and its
first queries take longer than most of them. Each line of its standard input is a request in JSON: `begin` an
operation, `run` it with a topic, `end` it. Each answer is a line with the figures; the session ends with its
input.
"""

import argparse
import contextlib
import json
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


class Sessions:
    """The sessions of all cases: each starts with the first case that needs it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], _Session] = {}

    @contextlib.contextmanager
    def operation(
        self, side: str, operation: str, bootstrap_servers: str, topic: str, *, rows: int, record_bytes: int
    ) -> Iterator[Callable[[str], Sequence[float]]]:
        """Prepare an operation in the session of a side and cluster.

        Each call runs it once and returns its figures; its topic may be another one, if the operation writes.
        """
        key = (side, bootstrap_servers)
        session = self._open.get(key)
        if session is None or session.has_ended:
            session = self._open[key] = _Session(side, bootstrap_servers)
        session.ask("begin", operation, topic, rows, record_bytes)
        yield lambda topic: session.ask("run", topic)
        if not session.has_ended:
            session.ask("end")

    def close(self) -> None:
        """End all sessions."""
        while self._open:
            _, session = self._open.popitem()
            if not session.has_ended:
                session.close()


SESSIONS = Sessions()


class _Session:
    """A process of this module."""

    def __init__(self, side: str, bootstrap_servers: str) -> None:
        self._side = side
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the session
        # Of the process that is killed at a bound: its files go all the same, though its JVM may still write.
        self._directory = tempfile.TemporaryDirectory(prefix="benchmark-session-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.dataframes", side, bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "TMPDIR": self._directory.name},
        )

    @property
    def has_ended(self) -> bool:
        """Whether it does nothing any more: what it was asked for was cut, or it was closed."""
        return self._process.returncode is not None

    def ask(self, *request: str | int) -> Sequence[float]:
        """Return the figures of one request.

        The session ends if the request is cut in the middle, as at the bound of a case.
        """
        try:
            return self._answer(*request)
        except BaseException:
            self.kill()
            raise

    def _answer(self, *request: str | int) -> Sequence[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return [float(figure) for figure in line.removeprefix(ANSWER).split()]
        self._errors.seek(0)
        raise RuntimeError(f"{self._side} {request} failed:\n{self._errors.read()[-4000:]}")

    def close(self) -> None:
        """Let it end its Spark session."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it wherever it is; its JVM goes with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()
        self._directory.cleanup()


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
    before: set[int] = set()
    """The batches that have rows."""

    def one_ms() -> float:
        for number in range(BATCH_ROWS):
            producer.produce(options["subscribe"], bytes(100), partition=number % 3)
        producer.flush()
        seen = 0
        while seen < BATCH_ROWS:
            time.sleep(POLL_S)
            # Not by the last progress: what tells of an idle trigger has the number of the batch to come.
            done = [each for each in query.recentProgress if each.numInputRows and each.batchId not in before]
            seen = sum(each.numInputRows for each in done)
        before.update(each.batchId for each in done)
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

    def cpu_s() -> dict[int, float]:
        own = psutil.Process()
        times = {process.pid: process.cpu_times() for process in (own, *own.children(recursive=True))}
        return {pid: each.user + each.system for pid, each in times.items()}

    def measured() -> float:
        before_s = cpu_s()
        time.sleep(IDLE_S)
        # By process: workers of the session's earlier cases end meanwhile, with all that they ever took.
        return 1000 * sum(now_s - before_s.get(pid, 0.0) for pid, now_s in cpu_s().items()) / IDLE_S

    return measured


def _running(spark: SparkSession, source: str, options: Mapping[str, str], **trigger: str) -> StreamingQuery:
    """Start a query that reads what comes; return it when it has begun."""
    writer = spark.readStream.format(source).options(**options).load().writeStream.format("noop")
    query = (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[call-overload]
    while query.lastProgress is None and query.isActive:
        time.sleep(POLL_S)
    return cast(StreamingQuery, query)


def _figures(
    spark: SparkSession,
    source: str,
    servers: Mapping[str, str],
    *,
    operation: str,
    topic: str,
    rows: int,
    record_bytes: int,
) -> Callable[[str], Sequence[float]]:
    """Return what runs the operation once; where it reads, from this topic."""
    options = {**servers, "subscribe": topic}
    match operation:
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


def _end(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()
    spark.catalog.clearCache()
    spark.conf.unset(dataframe_writes.FILES_TOGETHER)


def main() -> None:
    """Answer the requests of standard input in a session of one side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=sorted(FORMATS))
    parser.add_argument("bootstrap_servers")
    arguments = parser.parse_args()
    servers = {"kafka.bootstrap.servers": arguments.bootstrap_servers}
    spark = spark_session(arguments.side)
    run: Callable[[str], Sequence[float]] | None = None
    for line in sys.stdin:
        figures: Sequence[float] = ()
        match json.loads(line):
            case ["begin", operation, topic, rows, record_bytes]:
                run = _figures(
                    spark,
                    FORMATS[arguments.side],
                    servers,
                    operation=operation,
                    topic=topic,
                    rows=rows,
                    record_bytes=record_bytes,
                )
            case ["run", topic]:
                assert run is not None
                figures = run(topic)
            case ["end"]:
                run = None
                _end(spark)
        print(ANSWER + " ".join(map(str, figures)), flush=True)
    _end(spark)
    spark.stop()


if __name__ == "__main__":
    main()
