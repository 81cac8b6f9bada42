"""Topics as DataFrames against a cluster of ours: what is read and written, to the record and the offset."""

import collections
import datetime
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import concat, lit
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.topic_pattern import compile_java_pattern
from sparklog.user.dataframe.writer import SparklogWriter
from tests.unit.sparklog.user.dataframe.java_patterns import NAMES, PATTERNS

PARTITIONS = 3
BASE_MS = 1_357_016_400_000
TIMEOUT_S = 20.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

topic_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """An empty topic of three partitions."""
    name = next(topic_names)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(TIMEOUT_S)
    return name


def produce(
    bootstrap_servers: str, topic: str, records: Sequence[Mapping[str, Any]], **settings: object
) -> None:
    """Write records with librdkafka, whose batches are then not ours; all of a call are one batch."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "linger.ms": 50, "partitioner": "murmur2_random", **settings}
    )
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(TIMEOUT_S) == 0


def consume(bootstrap_servers: str, topic: str, count: int) -> list[Any]:
    """Read `count` records with librdkafka."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        messages: list[Any] = []
        while len(messages) < count:
            found = consumer.consume(count - len(messages), TIMEOUT_S)
            assert found, f"{len(messages)} of {count} records within {TIMEOUT_S} s"
            messages += found
        return messages
    finally:
        consumer.close()


def numbered(count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [
        {"value": f"v{number}", "partition": partition, "timestamp": BASE_MS + number * 1000}
        for number in range(count)
    ]


def read(spark: SparkSession, topic: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("sparklog").option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return (reader.schema(schema) if schema else reader).load()


def values(rows: DataFrame) -> list[str]:
    return sorted((row.value.decode() for row in rows.select("value").collect()), key=lambda v: int(v[1:]))


def expected(start: int, end: int) -> list[str]:
    return [f"v{number}" for number in range(start, end)]


def test_read_of_a_record_has_all_its_columns(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """The connector's columns with the connector's values, nulls and headers included."""
    produce(
        bootstrap_servers,
        topic,
        [
            {
                "key": b"k",
                "value": b"v",
                "partition": 2,
                "timestamp": BASE_MS,
                "headers": [("h", b"1"), ("h", None)],
            },
            {"value": None, "partition": 2, "timestamp": BASE_MS + 1},
        ],
    )
    moment = datetime.datetime.fromtimestamp(BASE_MS / 1000)
    row = Row("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    headers = [Row(key="h", value=b"1"), Row(key="h", value=None)]
    assert read(spark, topic, includeHeaders=True).orderBy("offset").collect() == [
        row(b"k", b"v", topic, 2, 0, moment, 0, headers),
        row(None, None, topic, 2, 1, moment + datetime.timedelta(milliseconds=1), 0, None),
    ]


def test_read_of_some_columns_in_another_order_gives_these(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """A narrower schema is how to read less."""
    produce(bootstrap_servers, topic, numbered(3))
    rows = read(spark, topic, "offset bigint, headers array<struct<key:string,value:binary>>, value binary")
    assert rows.columns == ["offset", "headers", "value"]
    assert sorted(rows.collect()) == [(number, None, f"v{number}".encode()) for number in range(3)]


def test_read_of_every_codec_starts_and_ends_inside_a_batch(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """Offsets are exact whatever the batches are, and any client's compression is understood."""
    records = numbered(100)
    for number, codec in enumerate(CODECS):
        produce(
            bootstrap_servers, topic, records[number * 20 : (number + 1) * 20], **{"compression.type": codec}
        )
    rows = read(
        spark,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":17,"1":-2,"2":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":83,"1":-1,"2":0}}}}',
    )
    assert values(rows) == expected(17, 83)


def test_read_in_splits_gives_each_record_once(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """Tasks meet inside batches and neither lose nor repeat a record."""
    produce(bootstrap_servers, topic, numbered(100))
    rows = read(spark, topic, maxRecordsPerPartition=7)
    assert rows.rdd.getNumPartitions() == 15
    assert values(rows) == expected(0, 100)
    rows = read(spark, topic, minPartitions=4)
    assert rows.rdd.getNumPartitions() == 4
    assert values(rows) == expected(0, 100)


def test_read_between_timestamps_gives_what_lies_between(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """Rewinding to a moment: the first record at or after it, up to the first at or after the other."""
    produce(bootstrap_servers, topic, numbered(50))
    bounds: dict[str, Any] = {"startingTimestamp": BASE_MS + 9_500, "endingTimestamp": BASE_MS + 20_000}
    latest: dict[str, Any] = {"startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(spark, topic, **bounds, **latest)) == expected(10, 20)
    by_partition = f'{{"{topic}":{{"0":{BASE_MS + 48_000}}}}}'
    assigned = spark.read.format("sparklog").option("assign", f'{{"{topic}":[0]}}')
    assert values(assigned.option("startingOffsetsByTimestamp", by_partition).load()) == expected(48, 50)


def test_read_from_a_timestamp_that_a_partition_never_reached_fails_by_default(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """The connector's strategy `error`: an empty partition is not silently left out."""
    produce(bootstrap_servers, topic, numbered(1))
    with pytest.raises(Exception, match="No offset matched the starting timestamp"):
        read(spark, topic, startingTimestamp=BASE_MS).collect()


def test_read_with_options_of_a_mebibyte_leaves_nothing_of_them_in_files(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """What PySpark sends to tasks it writes into files if it is so long, but not what a source is given."""
    produce(bootstrap_servers, topic, numbered(1))
    key = "a private key of somebody's\n" * 40_000
    assert values(read(spark, topic, kafka__ssl__keystore__key=key)) == expected(0, 1)
    made = Path(str(spark.sparkContext._temp_dir)).parent.rglob("*")
    assert not [file for file in made if file.is_file() and key[:20].encode() in file.read_bytes()]


def test_read_by_pattern_finds_the_topics(spark: SparkSession, bootstrap_servers: str, topic: str) -> None:
    """As in the connector, a pattern may be found anywhere in the name unless it says otherwise."""
    produce(bootstrap_servers, topic, numbered(2))
    pattern = spark.read.format("sparklog").option("subscribePattern", f"pic[-]{topic.partition('-')[2]}$")
    assert values(pattern.load()) == expected(0, 2)


def test_pattern_finds_the_names_that_java_finds(spark: SparkSession) -> None:
    """The connector asks java.util.regex; a job that moves over reads the same topics."""
    patterns: Any = spark.sparkContext._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    in_java, here = {}, {}
    for pattern in PATTERNS:
        matches = compile_java_pattern("subscribePattern", pattern).search
        here[pattern] = [name for name in NAMES if matches(name)]
        compiled = patterns.compile(pattern)
        in_java[pattern] = [name for name in NAMES if compiled.matcher(name).find()]
    assert here == in_java


def test_read_beyond_what_is_there_fails_unless_told_not_to(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """Lost data is never passed over in silence; records that do not exist yet are another matter."""
    produce(bootstrap_servers, topic, numbered(10))
    beyond = f'{{"{topic}":{{"0":20,"1":0,"2":0}}}}'
    with pytest.raises(Exception, match=r"offset 20 of .*-0, which ends at 10: .*failOnDataLoss") as raised:
        read(spark, topic, endingOffsets=beyond).collect()
    assert "Traceback" not in str(raised.value)
    assert values(read(spark, topic, endingOffsets=beyond, failOnDataLoss=False)) == expected(0, 10)


@pytest.mark.long
def test_keyed_write_is_partitioned_as_by_librdkafka_and_java(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """A key's records stay together whichever client writes them."""
    keys = [f"N{number}AA"[: 1 + number % 9] + str(number) for number in range(300)]
    produce(bootstrap_servers, topic, [{"key": key, "value": "theirs"} for key in keys])
    rows = spark.createDataFrame([(key, "ours") for key in keys], "key string, value string").repartition(2)
    rows.write.format("sparklog").option("topic", topic).mode("append").save()
    found = collections.defaultdict(set)
    for message in consume(bootstrap_servers, topic, 600):
        found[message.value().decode()].add((message.key().decode(), message.partition()))
    assert found["ours"] == found["theirs"]
    assert len(found["ours"]) == 300


@pytest.mark.long
def test_write_in_every_codec_is_read_back_whole(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """What one client compresses every other understands; several batches a partition."""
    for number, codec in enumerate(CODECS):
        rows = spark.range(number * 1_000, number * 1_000 + 1_000).select(
            concat(lit("v"), "id").alias("value")
        )
        writer = rows.write.format("sparklog").option("topic", topic).mode("append")
        writer.option("kafka.compression.type", codec).option("kafka.batch.size", 2048).save()
    assert values(read(spark, topic, "value binary")) == expected(0, 5_000)
    messages = consume(bootstrap_servers, topic, 5_000)
    assert {message.value().decode() for message in messages} == set(expected(0, 5_000))
    assert {message.partition() for message in messages} == {0, 1, 2}


def test_write_of_all_columns_is_what_librdkafka_reads(
    spark: SparkSession, bootstrap_servers: str, topic: str
) -> None:
    """Headers, nulls, event time, chosen partition and topic column arrive as they are."""
    moment = datetime.datetime(2013, 1, 1, 5, 15, tzinfo=datetime.UTC)
    rows = spark.createDataFrame(
        [
            (topic, b"k", b"v", [("h", b"1"), ("n", None)], 1, moment),
            (topic, None, None, None, 2, None),
        ],
        "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, "
        "partition int, timestamp timestamp",
    )
    before_ms = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    rows.write.format("sparklog").mode("append").save()
    first, second = sorted(consume(bootstrap_servers, topic, 2), key=lambda message: message.partition())
    assert (first.key(), first.value(), first.partition()) == (b"k", b"v", 1)
    assert first.headers() == [("h", b"1"), ("n", None)]
    assert first.timestamp()[1] == int(moment.timestamp() * 1000)
    assert (second.key(), second.value(), second.partition(), second.headers()) == (None, None, 2, None)
    assert second.timestamp()[1] >= int(before_ms)


def test_write_to_a_new_topic_creates_it(spark: SparkSession, bootstrap_servers: str) -> None:
    """As with Kafka's producer, where auto.create.topics.enable allows it."""
    name = next(topic_names)
    spark.createDataFrame([("v0",)], "value string").write.format("sparklog").option("topic", name).mode(
        "append"
    ).save()
    assert values(read(spark, name)) == ["v0"]


WRONG_READS = [
    pytest.param({}, None, "One of the following options must be specified", marks=pytest.mark.long),
    ({"subscribe": "nosuch", "fetchOffset.numRetries": "0"}, None, "topic nosuch does not exist"),
    pytest.param(
        {"subscribe": "a"}, "value string", "Column 'value' is binary, not string", marks=pytest.mark.long
    ),
]
"""One takes the way through Spark's processes; which others are wrong is asked without Spark, too."""


@pytest.mark.parametrize(("options", "schema", "message"), WRONG_READS)
def test_wrong_read_fails_before_it_runs_and_says_how(
    spark: SparkSession, options: dict[str, str], schema: str | None, message: str
) -> None:
    """The error reaches the user through Spark's processes."""
    reader = spark.read.format("sparklog").options(**options)
    with pytest.raises(Exception, match=message):
        (reader.schema(schema) if schema else reader).load().collect()


WRONG_WRITES = [
    ("'v' AS value", {"topic": "a"}, "overwrite", "Overwrite is not allowed"),
    ("'v' AS value, 3 AS partition", {"topic": "a"}, "append", "partition 3 does not exist"),
]
"""One is refused where a write is planned, one in its task."""
FURTHER_WRONG_WRITES = [
    ("'v' AS v", {"topic": "a"}, "append", "Required attribute 'value' not found"),
    ("'v' AS value", {"topic": "a", "kafka.acks": "7"}, "append", "must be one of all, -1, 0, 1"),
    ("'v' AS value, CAST(null AS string) AS topic", {}, "append", "null topic present in the data"),
    ("repeat('v', 2000000) AS value", {"topic": "a"}, "append", "kafka.max.request.size"),
]


@pytest.mark.parametrize(
    ("columns", "options", "mode", "message"),
    [*WRONG_WRITES, *(pytest.param(*each, marks=pytest.mark.long) for each in FURTHER_WRONG_WRITES)],
)
def test_wrong_write_fails_and_says_how(
    spark: SparkSession, columns: str, options: dict[str, str], mode: str, message: str
) -> None:
    """The error reaches the user through Spark's processes."""
    with pytest.raises(Exception, match=message):
        spark.sql(f"SELECT {columns}").write.format("sparklog").options(**options).mode(mode).save()


def test_save_without_a_mode_is_refused_by_spark_with_the_one_to_use(spark: SparkSession) -> None:
    """Nothing a source in Python can change; when this fails, docs/coming-from-kafka.md may say less."""
    with pytest.raises(AnalysisException, match='"Append"'):
        spark.range(1).selectExpr("'v' AS value").write.format("sparklog").option("topic", "t").save()


def test_table_with_options_is_refused_when_it_is_made(spark: SparkSession, topic: str) -> None:
    """Spark would take the statement, drop the options, and have every query fail."""
    with pytest.raises(AnalysisException, match=r"give them with each query.*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE refused USING sparklog OPTIONS (subscribe '{topic}')")
    assert not spark.catalog.tableExists("refused")


@pytest.mark.long
def test_table_with_columns_and_options_says_in_a_query_where_options_go(
    spark: SparkSession, topic: str
) -> None:
    """Where a statement has columns Spark does not ask the source, and drops the options all the same."""
    spark.sql(f"CREATE TABLE columns (value BINARY) USING sparklog OPTIONS (subscribe '{topic}')")
    try:
        with pytest.raises(Exception, match=r"FROM t WITH \(subscribe = "):
            spark.sql("SELECT * FROM columns").collect()
    finally:
        spark.sql("DROP TABLE columns")


def test_write_of_old_event_times_says_that_retention_will_delete_them(
    bootstrap_servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They are acknowledged, and deleted minutes later; the writer is called as Spark calls it.

    It says so once a topic; under another name this cluster is another one, with a topic of the same name.
    """
    schema = StructType([StructField("value", StringType()), StructField("timestamp", DoubleType())])
    for servers in (bootstrap_servers, bootstrap_servers.replace("127.0.0.1", "localhost")):
        options = WriteOptions.parse({"topic": topic}, servers)
        for seconds in (BASE_MS / 1000, BASE_MS / 1000, time.time()):
            writer = SparklogWriter(options, schema)
            writer.prepare()
            writer.commit([writer.write(iter([pa.record_batch({"value": ["v"], "timestamp": [seconds]})]))])
    warnings = [each.message for each in caplog.records if each.name.startswith("sparklog.user.dataframe")]
    assert len(warnings) == 2
    for warning in warnings:
        assert f"back to 2013-01-01 05:00:00 UTC were written to topic {topic}, which keeps 7 days" in warning
