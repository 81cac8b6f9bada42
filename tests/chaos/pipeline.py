"""A pipeline: a topic is read as a stream, counted with state, shuffled, and written to another, once.

    python -m tests.chaos.pipeline <bootstrap servers> <source> <target> <directory> <seed> [stop]

Records of the source are `<number>:<word>`. Two queries write to the same topic, each with a key of its own:

- `counted` tells of each record the how manieth of its word it is, as `<word>:<count>`. The counts are
  Spark's state, so whatever is read again, left out or counted twice shows.
- `copied` has no state, so that any setting may be another one whenever it is started again: the records' own
  values, shuffled.

What each task writes goes to all partitions of the topic, so that its transaction has leaders everywhere.

Nobody is to see whether it was started anew a hundred times: each time with other settings, drawn from the
seed. A query that fails is started again, as a supervisor would do it; what it must never say is noted in the
file `broken`. The file `progress` has the last batch of each that was done, and the process ends when its
standard input does. What it says, Spark included, goes to the file `log`.
"""

import contextlib
import json
import os
import random
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.class_archive.archive import SHORT_LIVED
from tests.chaos.exactly_once import PARTITIONS
from tests.chaos.hosts import session_of_hosts
from tests.chaos.slow_tasks import SPECULATION, at_times_slowly
from tests.chaos.stops import PLACE, StoppingDataSource

QUERIES: Final = ("counted", "copied")
NOTHING: Final = "nothing"
"""Said of a query that has done no batch since its application was started."""
LEAST_OFTEN_S: Final = 0.2
SPECULATIVE: Final = 0.4
"""How often an application runs slow tasks a second time."""
PROPERTIES: Final = {
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    # The master gives up an application whose executors are killed too often.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "4",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
NEVER_SAID: Final = (
    "would be written a second time",
    "was superseded by run",
    "is not whole",
    "become the decider of this sink again and again",
    "was decided when its tasks asked, and the decision is gone now",
    "cannot be read",
    "rows now, and had",
)
"""By the errors of a sink whose query nobody copied, and whose checkpoint and topics nobody touched."""


class Settings:
    """What differs from one start of a query to the next."""

    def __init__(self, chance: random.Random) -> None:
        self.session = {
            "spark.sql.shuffle.partitions": str(chance.randint(1, 5)),
            "spark.sql.adaptive.enabled": chance.choice(("true", "false")),
            "spark.sql.adaptive.streaming.stateless.enabled": chance.choice(("true", "false")),
        }
        self.available_now = chance.random() < 0.5
        self.max_offsets = chance.choice((None, 2_000, 10_000))
        self.tasks = chance.choice((None, 1, 2, 3))
        """Into how many a batch is shuffled before it is written; None leaves it to Spark."""

    def __str__(self) -> str:
        return json.dumps(vars(self))


def main() -> None:
    """Run the queries until nobody wants them any more."""
    servers, source, target, directory, seed, *is_to_stop = sys.argv[1:]
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    os.environ[PLACE] = directory
    with (place / "log").open("ab") as log:
        for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(log.fileno(), descriptor)
    with (place / "starts").open("a+") as starts:
        starts.write("started\n")
        starts.seek(0)
        number = len(starts.readlines())
    chance = random.Random(f"{seed}/{number}")
    is_speculative = chance.random() < SPECULATIVE
    print(f"pipeline, start {number}, speculative: {is_speculative}", flush=True)
    # A second attempt needs a host that has none.
    hosts = 2 if is_speculative else chance.randint(1, 2)
    properties = {**PROPERTIES, "spark.local.dir": str(place / "scratch")}
    if is_speculative:
        properties |= SPECULATION
    with session_of_hosts(hosts, "pipeline", place / "executors", properties) as spark:
        sink_format = "sparklog"
        if is_to_stop:
            spark.dataSource.register(StoppingDataSource)
            sink_format = StoppingDataSource.name()
        pipeline = Pipeline(
            spark, servers, source, target, place, chance, sink_format, is_speculative=is_speculative
        )
        while not _is_told_to_end():
            pipeline.go_on()
        pipeline.stop()


class Pipeline:
    """Both queries."""

    def __init__(
        self,
        spark: SparkSession,
        servers: str,
        source: str,
        target: str,
        place: Path,
        chance: random.Random,
        sink_format: str,
        *,
        is_speculative: bool,
    ) -> None:
        self._spark = spark
        self._servers = servers
        self._source = source
        self._target = target
        self._place = place
        self._chance = chance
        self._is_speculative = is_speculative
        self._format = sink_format
        self._queries: dict[str, StreamingQuery] = {}
        self._last: dict[str, str] = {}

    def go_on(self) -> None:
        """Start whatever does not run, and say how far it all came."""
        for name in QUERIES:
            query = self._queries.get(name)
            if query is None or not query.isActive:
                if query is not None:
                    self._note_failure(name, query)
                self._queries[name] = self._start(name)
        for name, query in self._queries.items():
            last = query.lastProgress
            if last is not None:
                self._last[name] = f"batch {last['batchId']} of run {last['runId']}"
        unfinished = self._place / "progress.new"
        unfinished.write_text("\n".join(self._last.get(name, NOTHING) for name in QUERIES))
        unfinished.replace(self._place / "progress")

    def stop(self) -> None:
        """End both."""
        for query in self._queries.values():
            query.stop()

    def _note_failure(self, name: str, query: StreamingQuery) -> None:
        failure = query.exception()
        if failure is None:
            return
        text = str(failure)
        print(f"query {name} failed: {text.splitlines()[0][:300]}", flush=True)
        if any(never in text for never in NEVER_SAID):
            with (self._place / "broken").open("a") as broken:
                broken.write(f"query {name}: {text}\n")

    def _start(self, name: str) -> StreamingQuery:
        settings = Settings(self._chance)
        print(f"query {name}: {settings}", flush=True)
        for key, value in settings.session.items():
            self._spark.conf.set(key, value)
        options = {"kafka.bootstrap.servers": self._servers, "subscribe": self._source}
        options["startingOffsets"] = "earliest"
        if settings.max_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(settings.max_offsets)
        records = self._spark.readStream.format("sparklog").options(**options).load()
        values = records.selectExpr("CAST(value AS STRING) AS value")
        rows = _counted(values) if name == "counted" else values
        shuffled = rows.repartition(settings.tasks) if settings.tasks else rows.repartition("value")
        if self._is_speculative:  # in the tasks that write
            place = self._place
            shuffled = shuffled.mapInArrow(lambda each: at_times_slowly(each, place), shuffled.schema)
        written = (
            shuffled.selectExpr(f"'{name}' AS key", "value", f"pmod(hash(value), {PARTITIONS}) AS partition")
            .writeStream.format(self._format)
            .option("kafka.bootstrap.servers", self._servers)
            .option("topic", self._target)
            .option("checkpointLocation", str(self._place / f"checkpoint-{name}"))
        )
        if settings.available_now:
            return written.trigger(availableNow=True).start()
        return written.trigger(processingTime="0 seconds").start()


def _counted(values: DataFrame) -> DataFrame:
    words = values.selectExpr("split(value, ':')[1] AS word")
    counts = words.groupBy("word").applyInPandasWithState(
        _count, "word string, count long", "total long", "append", GroupStateTimeout.NoTimeout
    )
    # Rows as Python gives them can't be shuffled by Spark 4.3 (ClassCastException): these are others.
    return counts.selectExpr("concat(word, ':', count) AS value")


def _count(key: tuple[Any, ...], rows: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (before,) = state.get if state.exists else (0,)
    counted = before + sum(len(each) for each in rows)
    state.update((counted,))
    yield pd.DataFrame({"word": key[0], "count": range(before + 1, counted + 1)})


def _is_told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], LEAST_OFTEN_S)[0])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
