"""Options mean what they mean to Spark's Kafka connector; wrong ones are refused by name."""

import logging
import re

import pytest

from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import TopicPartition
from sparklog.user.dataframe.delivery_guarantee import ApplicationVersion, DeliveryGuarantee
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.offset_limits import (
    EARLIEST,
    LATEST,
    SpecificOffsets,
    SpecificTimestamps,
    Timestamp,
)
from sparklog.user.dataframe.options import (
    Assigned,
    Pattern,
    ReadOptions,
    StreamReadOptions,
    Subscribed,
    WriteOptions,
    read_options_of_either_kind,
)

SUBSCRIBED = {"subscribe": "flights"}


def read(**options: str) -> ReadOptions:
    return ReadOptions.parse({name.replace("__", "."): value for name, value in options.items()}, "own:9092")


def write(**options: str) -> WriteOptions:
    return WriteOptions.parse({name.replace("__", "."): value for name, value in options.items()}, "own:9092")


def test_read_options_by_default_read_everything_of_the_sessions_own_cluster() -> None:
    """The shortest read needs no address and no offsets."""
    options = read(subscribe="flights")
    assert options.client.bootstrap_servers == (("own", 9092),)
    assert options.topics == Subscribed(("flights",))
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_read_options_names_in_any_case_are_found() -> None:
    """Spark's options are case-insensitive, and Spark lowers them on some paths."""
    options = ReadOptions.parse(
        {"SUBSCRIBE": "a, b,", "failondataloss": "FALSE", "KAFKA.Bootstrap.Servers": "x:1,[::1]:2"}, None
    )
    assert options.topics == Subscribed(("a", "b"))
    assert not options.fail_on_data_loss
    assert options.client.bootstrap_servers == (("x", 1), ("::1", 2))
    assert not options.client.of_this_application


def test_read_options_all_forms_are_parsed() -> None:
    """One read that uses the rest of the options."""
    options = read(
        assign='{"t": [0, 2]}',
        startingOffsets='{"t": {"0": 23, "2": -2}}',
        endingOffsets='{"t": {"0": -1, "2": 50}}',
        minPartitions="4",
        maxRecordsPerPartition="1000",
        includeHeaders="true",
        kafka__isolation__level="read_committed",
        kafka__max__partition__fetch__bytes="65536",
        kafkaConsumer__pollTimeoutMs="512",
        fetchOffset__numRetries="2",
        fetchOffset__retryIntervalMs="10",
    )
    first, second = TopicPartition("t", 0), TopicPartition("t", 2)
    assert options.topics == Assigned(frozenset({first, second}))
    assert options.starting == SpecificOffsets({first: 23, second: EARLIEST})
    assert options.ending == SpecificOffsets({first: LATEST, second: 50})
    assert (options.min_partitions, options.max_records_per_partition) == (4, 1000)
    assert options.include_headers
    assert options.fetch.read_committed
    assert options.fetch.max_partition_bytes == 65536
    assert options.fetch.poll_timeout_ms == 512
    assert options.client.unknown_topic_timeout_ms == 20


def test_read_options_pattern_is_compiled() -> None:
    """A pattern is compiled once, where a wrong one can still be refused."""
    options = read(subscribePattern="fl.*")
    assert options.topics == Pattern("fl.*")


def test_read_options_timestamp_takes_precedence() -> None:
    """The connector's order: one timestamp, timestamps by partition, offsets."""
    everything = {
        **SUBSCRIBED,
        "startingTimestamp": "1000",
        "startingOffsetsByTimestamp": '{"flights": {"0": 2000}}',
        "startingOffsets": "earliest",
    }
    assert ReadOptions.parse(everything, "own:1").starting == Timestamp(1000)
    del everything["startingTimestamp"]
    by_partition = SpecificTimestamps({TopicPartition("flights", 0): 2000})
    assert ReadOptions.parse(everything, "own:1").starting == by_partition


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "One of the following options must be specified: assign, subscribe, subscribePattern"),
        ({**SUBSCRIBED, "assign": '{"t":[0]}'}, "Only one of the following options can be specified"),
        ({"subscribe": " , "}, "No topics to subscribe to"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"subscribePattern": "(("}, "not a regular expression"),
        ({"assign": "t"}, "Option 'assign': expected e.g. {\"topicA\":[0,1]"),
        ({"assign": '{"t": [true]}'}, "expected e.g."),
        ({"assign": "{}"}, "No topicpartitions to assign"),
        ({**SUBSCRIBED, "startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({**SUBSCRIBED, "startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({**SUBSCRIBED, "endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({**SUBSCRIBED, "endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets for t-0 can't be earliest"),
        ({**SUBSCRIBED, "startingOffsets": '{"t":{"0":-3}}'}, "offset -3 for t-0"),
        ({**SUBSCRIBED, "startingOffsets": "soon"}, "Option 'startingOffsets': expected e.g."),
        ({**SUBSCRIBED, "startingOffsets": '{"t":{"0":"5"}}'}, "expected e.g."),
        ({**SUBSCRIBED, "startingOffsets": f'{{"t":{{"{"7" * 5000}":5}}}}'}, "expected e.g."),
        ({**SUBSCRIBED, "startingOffsets": "[" * 100_000}, "expected e.g."),
        ({**SUBSCRIBED, "startingTimestamp": "noon"}, "Option 'startingTimestamp' is 'noon'"),
        ({**SUBSCRIBED, "startingTimestamp": "-5"}, "startingTimestamp"),
        ({**SUBSCRIBED, "startingTimestamp": "9", "endingTimestamp": "8"}, "is after endingTimestamp"),
        ({**SUBSCRIBED, "startingOffsetsByTimestampStrategy": "guess"}, "must be error or latest"),
        ({**SUBSCRIBED, "failOnDataLoss": "maybe"}, "Option 'failOnDataLoss' is 'maybe'"),
        ({**SUBSCRIBED, "minPartitions": "0"}, "minPartitions must be positive"),
        ({**SUBSCRIBED, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({**SUBSCRIBED, "startingOffset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({**SUBSCRIBED, "kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not an address"),
        ({**SUBSCRIBED, "kafka.bootstrap.servers": ","}, "no address of the form host:port"),
        (
            {**SUBSCRIBED, "kafka.auto.offset.reset": "latest"},
            "instead set the source option 'startingOffsets'",
        ),
        ({**SUBSCRIBED, "kafka.key.deserializer": "x"}, "such as cast('string')"),
        ({**SUBSCRIBED, "kafka.enable.auto.commit": "true"}, "is not supported"),
        ({**SUBSCRIBED, "kafka.interceptor.classes": "x"}, "is not supported"),
        ({**SUBSCRIBED, "kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT"),
        ({**SUBSCRIBED, "kafka.security.protocol": "SASL_SSL"}, "must be one of PLAIN, SCRAM"),
        ({**SUBSCRIBED, "kafka.sasl.login.class": "x"}, "clients log in by"),
        ({**SUBSCRIBED, "kafka.ssl.truststore.locatoin": "/a"}, "'kafka.ssl.truststore.location'?"),
        ({**SUBSCRIBED, "kafka.ssl.engine.factory.class": "x"}, "TLS is OpenSSL's here"),
        (
            {**SUBSCRIBED, "kafka.security.protocol": "SSL", "kafka.ssl.enabled.protocols": "TLSv1.1"},
            "must be some of TLSv1.2, TLSv1.3",
        ),
        ({**SUBSCRIBED, "kafka.fetch.max.byte": "1"}, "did you mean 'kafka.fetch.max.bytes'?"),
        ({**SUBSCRIBED, "kafka.max.partition.fetch.bytes": "many"}, "must be a whole number"),
        ({**SUBSCRIBED, "kafka.isolation.level": "chaos"}, "must be one of read_uncommitted, read_committed"),
        (
            {**SUBSCRIBED, "startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
            "must name the same partitions; t-0, t-1",
        ),
        (
            {**SUBSCRIBED, "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":8}}'},
            "t-0: the starting offset 9 is after the ending offset 8",
        ),
        ({"subscribe": "flights, my topic"}, "'subscribe': topic name 'my topic' has characters other than"),
        ({"assign": '{"my/topic": [0]}'}, "'assign': topic name 'my/topic' has characters other than"),
        (
            {**SUBSCRIBED, "startingTimestamp": "2026-01-01T00:00:00"},
            "must be milliseconds since 1970, and that time in UTC is 1767225600000",
        ),
        (
            {**SUBSCRIBED, "endingTimestamp": "2026-01-01 01:00:00.250+01:00"},
            "must be milliseconds since 1970, and that time is 1767225600250",
        ),
        (
            {**SUBSCRIBED, "startingOffsetsByTimestamp": '{"t": {"0": "2026-01-01"}}'},
            "must be milliseconds since 1970, and that time in UTC is 1767225600000",
        ),
        ({**SUBSCRIBED, "startingTimestamp": "yesterday"}, "'yesterday'; it must be milliseconds since 1970"),
    ],
)
def test_read_options_wrong_ones_are_refused_by_name(options: dict[str, str], message: str) -> None:
    """A mistake is found before the query runs, and says what to write instead."""
    with pytest.raises(DataSourceOptionError) as raised:
        ReadOptions.parse(options, "own:9092")
    assert message in str(raised.value)


def test_read_options_without_any_cluster_are_refused() -> None:
    """Nobody guesses an address."""
    with pytest.raises(DataSourceOptionError, match=r"kafka\.bootstrap\.servers.*sparklog\.start"):
        ReadOptions.parse(SUBSCRIBED, None)


@pytest.mark.parametrize("name", ["kafka.group.id", "groupIdPrefix", "maxOffsetsPerTrigger", "unheardOf"])
def test_read_options_without_effect_are_reported(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """What the connector accepts is accepted, but not in silence."""
    with caplog.at_level(logging.WARNING):
        ReadOptions.parse({**SUBSCRIBED, name: "1"}, "own:9092")
    assert name.lower() in caplog.text.lower()


def test_options_without_effect_are_reported_once_a_process(caplog: pytest.LogCaptureFixture) -> None:
    """Each task, and each batch of a stream, parses them again: a line a second for as long as it ran."""
    given = {"topic": "t", "subscribe": "t", "kafka.linger.ms": "1", "unheardOf": "1"}
    read = {name: text for name, text in given.items() if name != "topic"}
    for _ in range(2):
        StreamReadOptions.parse(read, "own:9092")
        ReadOptions.parse(read, "own:9092")
        WriteOptions.parse(given, "own:9092")
    assert sorted(caplog.messages) == [
        "Option 'kafka.linger.ms' has no effect: the sparklog source has nothing to apply it to",
        "Option 'subscribe' has no effect here",
        "Option 'unheardof' is unknown to the sparklog source and ignored",
    ]


def test_read_options_of_either_kind_report_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """They are parsed again for the read itself: each of these was warned of three times."""
    with caplog.at_level(logging.WARNING):
        read_options_of_either_kind({**SUBSCRIBED, "maxOffsetsPerTrigger": "1", "kafka.group.id": "1"}, "a:1")
    assert caplog.text == ""


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"endingOffsets": "latest"}])
def test_read_options_of_either_kind_let_pass_what_one_kind_allows(options: dict[str, str]) -> None:
    """`load()` does not know for what it is asked; what neither allows fails there."""
    read_options_of_either_kind({**SUBSCRIBED, **options}, "a:1")
    with pytest.raises(DataSourceOptionError, match="for batch queries"):
        read_options_of_either_kind({**SUBSCRIBED, **options, "endingOffsets": "earliest"}, "a:1")


def test_write_options_by_default_are_safe() -> None:
    """Nobody loses or repeats records for want of an option."""
    options = write()
    assert options.topic is None
    assert (options.producer.acks, options.producer.idempotent) == (-1, True)
    assert options.producer.codec is Codec.NONE


def test_write_options_are_kafkas_producers() -> None:
    """Batches never exceed a request."""
    options = write(
        topic=" t ",
        kafka__compression__type="ZSTD",
        kafka__compression__zstd__level="7",
        kafka__batch__size="99999999",
        kafka__max__request__size="200000",
        kafka__acks="-1",
    )
    assert options.topic == "t"
    assert (options.producer.codec, options.producer.compression_level) == (Codec.ZSTD, 7)
    assert options.producer.batch_size_bytes == options.producer.max_request_bytes == 200_000


def test_write_options_weaker_acks_turn_idempotence_off() -> None:
    """As Kafka's producer does, unless both are asked for; a transaction needs it."""
    for setting in ({"kafka__acks": "1"}, {"kafka__enable__idempotence": "false"}):
        assert not write(deliveryGuarantee="atLeastOnce", **setting).producer.idempotent
        with pytest.raises(DataSourceOptionError, match="deliveryGuarantee=atLeastOnce"):
            write(**setting)


def test_write_options_exactly_once_is_the_default() -> None:
    """Whoever says nothing gets what cannot go wrong; words of other systems are understood."""
    assert write().guarantee is write(deliveryGuarantee="exactly-once").guarantee
    assert write().guarantee is DeliveryGuarantee.EXACTLY_ONCE
    assert write(deliveryGuarantee="AT_LEAST_ONCE").guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert write().transaction_timeout_ms is None
    assert write(kafka__transaction__timeout__ms="1000").transaction_timeout_ms == 1_000
    assert write(txnAppId="a", txnVersion="7").version == ApplicationVersion("a", 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": " "}, "Option 'topic' is empty"),
        ({"topics": "t"}, "did you mean 'topic'?"),
        ({"kafka.acks": "2"}, "must be one of all, -1, 0, 1"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs acks=all"),
        (
            {"kafka.max.in.flight.requests.per.connection": "6", "kafka.enable.idempotence": "true"},
            "a leader remembers 5 batches",
        ),
        ({"kafka.compression.type": "brotli"}, "must be one of none, gzip, snappy, lz4, zstd"),
        ({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "10"}, "from -1 to 9"),
        ({"kafka.transactional.id": "x"}, "its own transactional ids"),
        ({"deliveryGuarantee": "maybe"}, "must be exactlyOnce or atLeastOnce"),
        ({"txnAppId": "a"}, "must be given together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion"),
        ({"txnAppId": "", "txnVersion": "1"}, "1 to 256 characters"),
        ({"txnAppId": "a", "txnVersion": "1", "deliveryGuarantee": "atLeastOnce"}, "exactlyOnce"),
        ({"kafka.transaction.timeout.ms": "0"}, "from 1 to"),
        ({"kafka.key.serializer": "x"}, "is not supported"),
        ({"kafka.partitioner.class": "x"}, "column 'partition'"),
    ],
)
def test_write_options_wrong_ones_are_refused_by_name(options: dict[str, str], message: str) -> None:
    """A mistake is found before a row is written, and says what to write instead."""
    with pytest.raises(DataSourceOptionError) as raised:
        WriteOptions.parse(options, "own:9092")
    assert message in str(raised.value)


def stream(**options: str) -> StreamReadOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return StreamReadOptions.parse(given, "own:9092")


def test_options_that_spark_itself_heeds_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """Spark hands them on with the sink's own: a healthy stream warns of nothing."""
    WriteOptions.parse({"topic": "t", "checkpointLocation": "/c", "queryName": "q"}, "a:1")
    assert caplog.messages == []


def test_stream_options_by_default_begin_at_the_end_without_limits() -> None:
    """As with the connector: a stream is about what comes."""
    options = stream(subscribe="flights")
    assert (options.read.starting, options.read.ending) == (LATEST, LATEST)
    assert (options.limits.max_offsets, options.limits.min_offsets) == (None, None)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("15m", 900_000), ("250", 250), ("30s", 30_000), ("1 h", 3_600_000), ("2d", 172_800_000)],
)
def test_stream_options_max_trigger_delay_is_a_duration_of_spark(text: str, expected_ms: int) -> None:
    """With units as Spark has them, milliseconds without one."""
    options = stream(subscribe="t", minOffsetsPerTrigger="5", maxTriggerDelay=text)
    assert options.limits.max_delay_ms == expected_ms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets': a streaming query has no end"),
        ({"endingTimestamp": "5"}, "'endingTimestamp': a streaming query has no end"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "'minOffsetsPerTrigger' is 9, more than",
        ),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' is 'soon'; it must be a number with a unit"),
    ],
)
def test_stream_options_that_make_no_sense_are_refused(options: dict[str, str], message: str) -> None:
    """Before anything runs, by name."""
    with pytest.raises(DataSourceOptionError, match=re.escape(message)):
        stream(subscribe="t", **options)
