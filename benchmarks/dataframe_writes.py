"""What the sides of a comparison do when they write DataFrames and streams; run by `benchmarks.dataframes`.

The rows of a stream come from Parquet files that are in the page cache, a batch a few of them: they cost both
sides the same, and the query ends by itself.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.listener import StreamingQueryProgress

GUARANTEES = ("exactlyOnce", "atLeastOnce")
ISOLATIONS = ("read_committed", "read_uncommitted")
STREAM_BATCHES = 3
STREAM_TASKS = 2
SMALL_BATCH_ROWS = 1_000
SMALL_BATCHES = 14
SMALL_BATCHES_LEFT_OUT = 4
"""In which the query starts."""
SMALL_BATCH_TASKS = 3
FILES_TOGETHER = "spark.sql.files.minPartitionNum"
"""The key of a session that is set while a case reads files: else small ones are read together."""

Figures = Callable[[str], Sequence[float]]
"""Writes to a topic; returns what that took."""


def rows_per_s(rows: int, run: Callable[[], None]) -> float:
    """Return the rate of what is run."""
    started_s = time.monotonic()
    run()
    return rows / (time.monotonic() - started_s)


def batch_ms(progress: StreamingQueryProgress) -> float:
    """Return how long a micro-batch took, all in all."""
    return float(progress.durationMs["triggerExecution"])


def batch(
    spark: SparkSession, source: str, servers: Mapping[str, str], rows: int, record_bytes: int
) -> Figures:
    """Rows a second of a batch write."""
    frame = _persisted(_values(spark, rows, record_bytes))

    def measured(topic: str) -> Sequence[float]:
        writer = frame.write.format(source).options(**servers, topic=topic).mode("append")
        return (rows_per_s(rows, writer.save),)

    return measured


def batch_atomicity(spark: SparkSession, servers: Mapping[str, str], rows: int, record_bytes: int) -> Figures:
    """Rows a second of a batch write under each guarantee, and the ratio of the two.

    One order of the two, then the other: the machine drifts by more than the guarantee costs.
    """
    frame = _persisted(_values(spark, rows, record_bytes))

    def measured(topic: str) -> Sequence[float]:
        seconds = dict.fromkeys(GUARANTEES, 0.0)
        for guarantee in (*GUARANTEES, *reversed(GUARANTEES)):
            writer = frame.write.format("sparklog").options(**servers, topic=topic).mode("append")
            started_s = time.monotonic()
            writer.option("deliveryGuarantee", guarantee).save()
            seconds[guarantee] += time.monotonic() - started_s
        rates = [2 * rows / seconds[guarantee] for guarantee in GUARANTEES]
        return (*rates, rates[0] / rates[1])

    return measured


def isolation(spark: SparkSession, servers: Mapping[str, str], rows: int, record_bytes: int) -> Figures:
    """Rows a second of a batch read of what was written exactly once, of either isolation, and the ratio."""
    frame = _persisted(_values(spark, rows, record_bytes))
    written: set[str] = set()

    def measured(topic: str) -> Sequence[float]:
        if topic not in written:
            frame.write.format("sparklog").options(**servers, topic=topic).mode("append").save()
            written.add(topic)
        rates = []
        for level in ISOLATIONS:
            options = {**servers, "subscribe": topic, "kafka.isolation.level": level}
            read = spark.read.format("sparklog").options(**options).load()
            rates.append(rows_per_s(rows, read.write.format("noop").mode("overwrite").save))
        return (*rates, rates[0] / rates[1])

    return measured


def stream(
    spark: SparkSession, source: str, servers: Mapping[str, str], rows: int, record_bytes: int
) -> Figures:
    """Rows a second of a query that writes batches of `rows`: of all but the first, in which it starts."""
    written = _WrittenFiles(spark, STREAM_BATCHES * rows, record_bytes, STREAM_BATCHES, STREAM_TASKS)

    def measured(topic: str) -> Sequence[float]:
        done = written.copied(source, {**servers, "topic": topic})[1:]
        return (1000 * sum(each.numInputRows for each in done) / sum(map(batch_ms, done)),)

    return measured


def small_batches(spark: SparkSession, servers: Mapping[str, str]) -> Figures:
    """Milliseconds of a micro-batch of 1,000 rows under each guarantee, and how many more for the first."""
    written = _WrittenFiles(spark, SMALL_BATCHES * SMALL_BATCH_ROWS, 100, SMALL_BATCHES, SMALL_BATCH_TASKS)

    def measured(topic: str) -> Sequence[float]:
        took_ms = []
        for guarantee in GUARANTEES:
            done = written.copied("sparklog", {**servers, "topic": topic, "deliveryGuarantee": guarantee})
            took_ms.append(statistics.median(map(batch_ms, done[SMALL_BATCHES_LEFT_OUT:])))
        return (*took_ms, took_ms[0] - took_ms[1])

    return measured


def _values(spark: SparkSession, rows: int, record_bytes: int, partitions: int = 2) -> DataFrame:
    """Return rows of one column, that differ."""
    seed = F.sha2(F.col("id").cast("string"), 512)
    value = F.substring(F.repeat(seed, record_bytes // 128 + 1), 1, record_bytes)
    return spark.range(0, rows, 1, partitions).select(value.cast("binary").alias("value"))


def _persisted(frame: DataFrame) -> DataFrame:
    frame.persist().count()
    return frame


class _WrittenFiles:
    """Rows in files, as many a batch as it has tasks, gone when the case ends."""

    def __init__(self, spark: SparkSession, rows: int, record_bytes: int, batches: int, tasks: int) -> None:
        self._spark = spark
        self._batches = batches
        self._tasks = tasks
        self._directory = tempfile.TemporaryDirectory(prefix="benchmark-rows-")
        self._files = str(Path(self._directory.name) / "files")
        spark.conf.set(FILES_TOGETHER, tasks)
        frame = _values(spark, rows, record_bytes, batches * tasks)
        writer = frame.write.option("compression", "none").option("parquet.enable.dictionary", "false")
        writer.parquet(self._files)
        self._schema = frame.schema

    def copied(self, sink: str, options: Mapping[str, str]) -> list[StreamingQueryProgress]:
        """Have a new query write all rows; return what it says of its batches."""
        rows = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", self._tasks)
        checkpoint = tempfile.mkdtemp(dir=self._directory.name)
        writer = rows.parquet(self._files).writeStream.format(sink).options(**options)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        with suppress(OSError):
            rmtree(checkpoint)
        done = [each for each in query.recentProgress if each.numInputRows]
        assert len(done) == self._batches, "as many files each"
        return done
