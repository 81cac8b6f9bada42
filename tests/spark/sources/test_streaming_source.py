"""A topic as a stream: every record once in each query, whatever stops it, with the connector's options."""

import ast
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklog.spark_versions import HAS_READ_LIMITS
from tests.advertised_metadata import wait_until_all_tell_of

PARTITIONS = 3
TIMEOUT_S = 60.0
AVAILABLE_NOW = {"availableNow": True}

with_limits: Final = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark tells of no limits before 4.2")
without_limits: Final = pytest.mark.skipif(HAS_READ_LIMITS, reason="what is weaker before Spark 4.2")

topic_names = (f"stream-{number}" for number in itertools.count())


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    return create(admin, next(topic_names))


def create(admin: AdminClient, topic: str) -> str:
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(TIMEOUT_S)
    return topic


class Topic:
    """Writes numbered records, round robin."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
        self._topic = topic
        self.written = 0

    def write(self, count: int, partition: int | None = None) -> None:
        for number in range(self.written, self.written + count):
            to = number % PARTITIONS if partition is None else partition
            self._producer.produce(self._topic, str(number).encode(), partition=to)
        self.written += count
        assert self._producer.flush(TIMEOUT_S) == 0


@pytest.fixture
def records(bootstrap_servers: str, topic: str) -> Topic:
    return Topic(bootstrap_servers, topic)


class Seen:
    """What a query gave, batch by batch; `fail` makes its next batch fail once.

    A batch that was stopped before it was committed comes again, under the same id.
    """

    def __init__(self) -> None:
        self._batches: dict[int, list[Row]] = {}
        self.fail = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = batch.collect()
        if self.fail:
            self.fail = False
            raise RuntimeError("as asked")
        self._batches[batch_id] = rows

    @property
    def batches(self) -> list[list[Row]]:
        return list(self._batches.values())

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    @property
    def numbers(self) -> list[int]:
        return sorted(int(row.value) for row in self.rows)


def stream(spark: SparkSession, topic: str, format_name: str = "sparklog", **options: object) -> DataFrame:
    reader = spark.readStream.format(format_name)
    if not {"subscribePattern", "assign"} & options.keys():
        reader = reader.option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load()


def start(rows: DataFrame, seen: Seen, checkpoint: Path, **trigger: object) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[arg-type]


def run(rows: DataFrame, seen: Seen, checkpoint: Path) -> None:
    """Read what is there, and end."""
    query = start(rows, seen, checkpoint, **AVAILABLE_NOW)
    assert query.awaitTermination(int(TIMEOUT_S)), "the query did not end"


def run_after_a_stop(rows: DataFrame, seen: Seen, checkpoint: Path) -> None:
    """Read what is there, also where the stop or the failure before came ahead of a batch's commit.

    Before Spark 4.2 such a batch takes a run of availableNow of its own.
    """
    if not HAS_READ_LIMITS:
        run(rows, seen, checkpoint)
    run(rows, seen, checkpoint)


def until(condition: Callable[[], object], query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, None if query is None else query.status
        if query is not None and (failure := query.exception()) is not None:
            raise failure
        time.sleep(0.01)


def test_stream_gives_every_record_once_and_in_order_over_restarts(
    spark: SparkSession, topic: str, records: Topic, tmp_path: Path
) -> None:
    """What is there, what comes while it runs, and what came while it did not."""
    seen = Seen()
    records.write(30)
    rows = stream(spark, topic, startingOffsets="earliest")
    query = start(rows, seen, tmp_path)
    until(lambda: len(seen.rows) == 30, query)
    records.write(20)
    until(lambda: len(seen.rows) == 50, query)
    query.stop()
    records.write(10)
    query = start(rows, seen, tmp_path)
    until(lambda: len(seen.rows) == 60, query)
    query.stop()
    assert seen.numbers == list(range(60))
    for partition in range(PARTITIONS):
        assert [row.offset for row in seen.rows if row.partition == partition] == list(range(20))


@pytest.mark.long
def test_stream_from_the_latest_offset_repeats_its_first_batch_from_where_that_began(
    spark: SparkSession, topic: str, records: Topic, tmp_path: Path
) -> None:
    """Spark does not say where a first batch began: asked anew, the latest offset would lie behind it."""
    seen = Seen()
    records.write(6)
    rows = stream(spark, topic)
    seen.fail = True
    query = start(rows, seen, tmp_path)
    until(lambda: query.status["message"] == "Waiting for data to arrive" or not query.isActive)
    records.write(6)
    with pytest.raises(StreamingQueryException, match="as asked"):
        query.awaitTermination(int(TIMEOUT_S))
    records.write(3)
    run_after_a_stop(rows, seen, tmp_path)
    assert seen.numbers == list(range(6, 15))


@with_limits
def test_stream_available_now_reads_what_was_there_in_limited_batches_and_ends(
    spark: SparkSession, topic: str, records: Topic, tmp_path: Path
) -> None:
    """maxOffsetsPerTrigger holds, and what is written meanwhile is the next run's."""
    records.write(90)
    seen = Seen()

    def write_more(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            records.write(9)
        seen(batch, batch_id)

    rows = stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    writer = rows.writeStream.foreachBatch(write_more).option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(int(TIMEOUT_S))
    assert [len(batch) for batch in seen.batches] == [30, 30, 30]
    assert seen.numbers == list(range(90))


@without_limits
def test_stream_available_now_of_an_old_spark_reads_what_was_there_in_one_batch(
    spark: SparkSession, topic: str, records: Topic, tmp_path: Path
) -> None:
    """Spark makes one batch, of a new query and of one that goes on: a limit would leave records unread."""
    rows = stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    seen = Seen()
    for _ in range(2):
        records.write(90)
        run(rows, seen, tmp_path)
    assert [len(batch) for batch in seen.batches] == [90, 90]
    assert seen.numbers == list(range(180))


@without_limits
def test_stream_available_now_of_an_old_spark_reads_what_came_after_an_uncommitted_batch_in_the_next_run(
    spark: SparkSession, topic: str, records: Topic, tmp_path: Path
) -> None:
    """Spark runs it as a single batch, which is the one without a commit: nothing is lost, but it is late."""
    rows = stream(spark, topic, startingOffsets="earliest")
    seen = Seen()
    records.write(9)
    seen.fail = True
    with pytest.raises(StreamingQueryException, match="as asked"):
        run(rows, seen, tmp_path)
    records.write(3)
    run(rows, seen, tmp_path)
    assert seen.numbers == list(range(9))
    run(rows, seen, tmp_path)
    assert seen.numbers == list(range(12))


@without_limits
def test_stream_of_an_old_spark_is_limited_from_the_second_batch_of_a_start_on(
    spark: SparkSession, topic: str, records: Topic, tmp_path: Path
) -> None:
    """Spark says nothing of the trigger, which may be availableNow, when it asks for the first end."""
    rows = stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    seen = Seen()
    for start_number in range(2):
        records.write(90)
        query = start(rows, seen, tmp_path)
        until(lambda before=start_number: len(seen.rows) == before * 135 + 90, query)
        records.write(45)
        until(lambda before=start_number: len(seen.rows) == before * 135 + 135, query)
        query.stop()
    assert seen.numbers == list(range(270))
    sizes = [len(batch) for batch in seen.batches]
    assert sizes.count(90) == 2
    assert max(size for size in sizes if size != 90) <= 30


@pytest.mark.long
def test_stream_waits_for_as_much_as_a_trigger_asks_for(
    spark: SparkSession, topic: str, records: Topic, tmp_path: Path
) -> None:
    """minOffsetsPerTrigger: after the first batch, few records wait for more."""
    seen = Seen()
    records.write(3)
    rows = stream(spark, topic, startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="10m")
    query = start(rows, seen, tmp_path)
    until(lambda: seen.batches, query)
    for _ in range(10):
        records.write(1)
    until(lambda: len(seen.batches) == 2, query)
    query.stop()
    assert [len(batch) for batch in seen.batches] == [3, 10]


@pytest.mark.long
def test_stream_finds_new_topics_and_partitions_while_it_runs(
    spark: SparkSession, admin: AdminClient, bootstrap_servers: str, tmp_path: Path
) -> None:
    """From their first record on, without a restart."""
    prefix = next(topic_names)
    first = create(admin, f"{prefix}-a")
    Topic(bootstrap_servers, first).write(3)
    seen = Seen()
    rows = stream(spark, "", subscribePattern=f"{prefix}-.*", startingOffsets="earliest")
    query = start(rows, seen, tmp_path)
    until(lambda: len(seen.rows) == 3, query)
    second = create(admin, f"{prefix}-b")
    Topic(bootstrap_servers, second).write(3)
    until(lambda: len(seen.rows) == 6, query)
    admin.create_partitions([NewPartitions(first, PARTITIONS + 1)])[first].result(TIMEOUT_S)
    wait_until_all_tell_of(bootstrap_servers, first, PARTITIONS + 1)
    Topic(bootstrap_servers, first).write(1, partition=PARTITIONS)
    until(lambda: len(seen.rows) == 7, query)
    query.stop()
    assert {(row.topic, row.partition) for row in seen.rows} == {
        *((name, partition) for name in (first, second) for partition in range(PARTITIONS)),
        (first, PARTITIONS),
    }


def test_stream_whose_records_are_gone_fails_or_goes_on_as_asked(
    spark: SparkSession, admin: AdminClient, topic: str, records: Topic, tmp_path: Path
) -> None:
    """Deleted before they were read: an error that says so, or what is left."""
    seen = Seen()
    records.write(3)
    run(stream(spark, topic, startingOffsets="earliest"), seen, tmp_path)
    records.write(9)
    admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0)].result(TIMEOUT_S)
    with pytest.raises(StreamingQueryException, match=r"Offsets 1 to 3 .* are gone"):
        run(stream(spark, topic), seen, tmp_path)
    run(stream(spark, topic, failOnDataLoss="false"), seen, tmp_path)
    assert seen.numbers == [0, 1, 2, 4, 5, 7, 8, 9, 10, 11]


@pytest.mark.long
def test_stream_of_a_topic_made_anew_says_that_data_is_lost(
    spark: SparkSession, admin: AdminClient, topic: str, records: Topic, tmp_path: Path
) -> None:
    """Offsets of the old topic mean nothing in the new one."""
    seen = Seen()
    records.write(9)
    query = start(stream(spark, topic, startingOffsets="earliest"), seen, tmp_path)
    until(lambda: len(seen.rows) == 9, query)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    with pytest.raises(StreamingQueryException, match=f"{topic}"):
        query.awaitTermination(int(TIMEOUT_S))


@pytest.mark.long
def test_stream_reads_a_topic_that_was_made_anew_from_its_beginning(
    spark: SparkSession,
    admin: AdminClient,
    bootstrap_servers: str,
    topic: str,
    records: Topic,
    tmp_path: Path,
) -> None:
    """With failOnDataLoss=false; the batch that moves the position back has no rows, whoever repeats it."""
    seen = Seen()
    records.write(9)
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    query = start(stream(spark, topic, **options), seen, tmp_path)
    until(lambda: len(seen.rows) == 9, query)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    create(admin, topic)
    anew = Topic(bootstrap_servers, topic)
    anew.write(9)
    until(lambda: len(seen.rows) == 18, query)
    query.stop()
    anew.write(3)
    run_after_a_stop(stream(spark, topic, **options), seen, tmp_path)
    assert seen.numbers == sorted([*range(9), *range(12)])


@pytest.mark.long
def test_stream_that_read_all_records_goes_on_with_committed_ones_where_it_stood(
    spark: SparkSession, bootstrap_servers: str, topic: str, records: Topic, tmp_path: Path
) -> None:
    """Also where a transaction that began before is open: that was a loss of data, for ever."""
    seen = Seen()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"-1", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    records.write(3, partition=0)
    everything = {"startingOffsets": "earliest", "kafka__isolation__level": "read_uncommitted"}
    run(stream(spark, topic, **everything), seen, tmp_path)
    assert seen.numbers == [-1, 0, 1, 2]
    records.write(3, partition=0)
    run(stream(spark, topic), seen, tmp_path)
    assert seen.numbers == [-1, 0, 1, 2]
    producer.commit_transaction(TIMEOUT_S)
    run(stream(spark, topic), seen, tmp_path)
    assert seen.numbers == [-1, 0, 1, 2, 3, 4, 5]


@pytest.mark.long
def test_stream_of_several_topics_goes_on_when_one_is_gone(
    spark: SparkSession,
    admin: AdminClient,
    bootstrap_servers: str,
    topic: str,
    records: Topic,
    tmp_path: Path,
) -> None:
    """With failOnDataLoss=false, started again as well; what was read of the others is not read again."""
    seen = Seen()
    records.write(9)
    other = create(admin, next(topic_names))
    Topic(bootstrap_servers, other).write(3)
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    query = start(stream(spark, f"{topic},{other}", **options), seen, tmp_path)
    until(lambda: len(seen.rows) == 12, query)
    admin.delete_topics([other])[other].result(TIMEOUT_S)
    records.write(9)
    until(lambda: len(seen.rows) >= 21, query)
    query.stop()
    records.write(3)
    run_after_a_stop(stream(spark, f"{topic},{other}", **options), seen, tmp_path)
    mine = [row for row in seen.rows if row.topic == topic]
    assert sorted(int(row.value) for row in mine) == list(range(21))


def test_stream_tells_its_lag(spark: SparkSession, topic: str, records: Topic, tmp_path: Path) -> None:
    """lastProgress has the offsets read and the latest ones, which before Spark 4.2 are the batch's end.

    And which are then no JSON: PySpark writes them as Python does.
    """
    records.write(30)
    seen = Seen()
    rows = stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=12)
    query = start(rows, seen, tmp_path, processingTime="1 hour")
    until(lambda: query.lastProgress, query)
    assert query.lastProgress is not None
    source = query.lastProgress["sources"][0]
    query.stop()
    assert sum(ast.literal_eval(source["endOffset"])[topic].values()) == (12 if HAS_READ_LIMITS else 30)
    assert sum(ast.literal_eval(source["latestOffset"])[topic].values()) == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"endingOffsets": "latest"}, "a streaming query has no end", marks=pytest.mark.long),
        pytest.param(
            {"maxOffsetsPerTrigger": "none"},
            "maxOffsetsPerTrigger' is 'none'; it must be a whole number",
            marks=pytest.mark.long,
        ),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
    ],
)
def test_stream_with_bad_options_names_them(
    spark: SparkSession, topic: str, options: dict[str, str], message: str, tmp_path: Path
) -> None:
    """Whether Spark asks for the schema or starts the query first, the user reads what was wrong."""
    with pytest.raises(Exception, match=message):
        run(stream(spark, topic, **options), Seen(), tmp_path)


@pytest.mark.long
def test_stream_is_written_as_a_stream(
    spark: SparkSession, admin: AdminClient, topic: str, records: Topic, tmp_path: Path
) -> None:
    """The sink takes the batch writer's columns and options; every row is there."""
    target = create(admin, next(topic_names))
    records.write(50)
    rows = stream(spark, topic, startingOffsets="earliest").selectExpr("value AS key", "value")
    writer = rows.writeStream.format("sparklog").option("topic", target)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(int(TIMEOUT_S))
    written = spark.read.format("sparklog").option("subscribe", target).load().collect()
    assert sorted(int(row.value) for row in written) == list(range(50))
