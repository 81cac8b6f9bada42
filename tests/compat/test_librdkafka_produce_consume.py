"""Unmodified confluent-kafka producing to and consuming from a live cluster."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.cluster import LocalCluster
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic, produce

NewName = Callable[[str], str]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produce_with_acks_is_read_back_in_order(
    cluster: LocalCluster, new_topic_name: NewName, acks: str
) -> None:
    """The first thing anybody does with a cluster, under each promise a producer can ask for."""
    topic = new_topic_name("acks")
    create_topic(cluster.bootstrap_servers, topic)
    records = [{"value": b"%d" % number} for number in range(1_000)]
    # Nobody tells a producer with acks=0 that its leader has only just been made one.
    produce(cluster.bootstrap_servers, topic, records[:1])
    produce(cluster.bootstrap_servers, topic, records[1:], acks=acks, **{"enable.idempotence": False})
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 1_000)
    assert [message.value() for message in messages] == [record["value"] for record in records]
    assert [message.offset() for message in messages] == list(range(1_000))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_with_codec_is_read_back_unchanged(
    cluster: LocalCluster, new_topic_name: NewName, codec: str
) -> None:
    """Batches are stored as they come: what librdkafka compressed, librdkafka must be able to read."""
    topic = new_topic_name(codec)
    create_topic(cluster.bootstrap_servers, topic)
    records = [
        {"key": b"key-%d" % number, "value": b"value-%d " % number * 20, "headers": [("n", b"%d" % number)]}
        for number in range(500)
    ]
    produce(
        cluster.bootstrap_servers, topic, records, **{"compression.type": codec, "enable.idempotence": True}
    )
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 500)
    assert [(m.key(), m.value(), m.headers()) for m in messages] == [
        (record["key"], record["value"], record["headers"]) for record in records
    ]


def test_produce_idempotently_to_many_partitions_keeps_order_in_each(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Idempotence is librdkafka's way to keep order with several requests in flight."""
    topic = new_topic_name("idempotent")
    create_topic(cluster.bootstrap_servers, topic, partitions=6)
    records = [
        {"partition": number % 6, "key": b"%d" % (number % 6), "value": b"%d" % number}
        for number in range(6_000)
    ]
    produce(cluster.bootstrap_servers, topic, records)
    assignment = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(6)]
    messages = consume(cluster.bootstrap_servers, assignment, 6_000)
    for partition in range(6):
        values = [int(m.value() or b"") for m in messages if m.partition() == partition]
        assert values == list(range(partition, 6_000, 6))


def test_produce_large_and_empty_and_null_values_come_back_as_they_were(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Tombstones and near-limit records take other paths than the small ones of every other test."""
    topic = new_topic_name("sizes")
    create_topic(cluster.bootstrap_servers, topic)
    values = [b"x" * 900_000, b"", None, b"y" * 500_000, b"z"]
    produce(cluster.bootstrap_servers, topic, [{"key": b"k", "value": value} for value in values])
    messages = consume(
        cluster.bootstrap_servers,
        [TopicPartition(topic, 0, OFFSET_BEGINNING)],
        5,
        **{"fetch.message.max.bytes": 10_000},
    )
    assert [message.value() for message in messages] == values


def test_produce_above_max_message_bytes_is_refused_by_the_broker(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """The producer must learn that this record never fits, instead of retrying it."""
    topic = new_topic_name("too-large")
    create_topic(cluster.bootstrap_servers, topic, config={"max.message.bytes": "1000"})
    errors: list[str] = []

    def delivered(error: Any, _: object) -> None:
        errors.append(error.name())

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"x" * 5_000, on_delivery=delivered)
    producer.flush(TIMEOUT_S)
    assert errors == ["MSG_SIZE_TOO_LARGE"]
    produce(cluster.bootstrap_servers, topic, [{"value": b"fits"}])


def test_produce_with_unknown_topic_creates_it_automatically(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """auto.create.topics.enable is on by default in Kafka, and many a tutorial rests on it."""
    topic = new_topic_name("automatic")
    produce(cluster.bootstrap_servers, topic, [{"value": b"first"}])
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 1)
    assert messages[0].value() == b"first"


def test_consume_from_timestamp_and_seek_start_where_asked(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Rewinding to a time is how a day is reprocessed."""
    topic = new_topic_name("times")
    create_topic(cluster.bootstrap_servers, topic)
    start_ms = 1_700_000_000_000
    records = [{"value": b"%d" % number, "timestamp": start_ms + number * 1_000} for number in range(100)]
    produce(cluster.bootstrap_servers, topic, records, **{"batch.num.messages": 10})
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )
    try:
        found = consumer.offsets_for_times([TopicPartition(topic, 0, start_ms + 42_500)], timeout=TIMEOUT_S)
        assert [partition.offset for partition in found] == [43]
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, 100)
        consumer.assign([TopicPartition(topic, 0, 43)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and (message.offset(), message.value()) == (43, b"43")
        assert message.timestamp() == (1, start_ms + 43_000)
        consumer.seek(TopicPartition(topic, 0, 7))
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.value() == b"7"
    finally:
        consumer.close()


@pytest.mark.parametrize(("reset", "first"), [("earliest", b"0"), ("latest", b"new")])
def test_consume_out_of_range_resets_as_configured(
    cluster: LocalCluster, new_topic_name: NewName, reset: str, first: bytes
) -> None:
    """A consumer whose offset is gone goes on by auto.offset.reset, which needs OFFSET_OUT_OF_RANGE."""
    topic = new_topic_name("reset")
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"%d" % number} for number in range(10)])
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 5_000)])
        message = None
        for _ in range(100):
            message = consumer.poll(0.2)
            if message is not None:
                break
            produce(cluster.bootstrap_servers, topic, [{"value": b"new"}])
        assert message is not None and message.value() == first
    finally:
        consumer.close()


def test_log_append_time_topic_gives_records_the_brokers_time(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """message.timestamp.type=LogAppendTime is promised to whoever cannot trust producers' clocks."""
    topic = new_topic_name("append-time")
    create_topic(cluster.bootstrap_servers, topic, config={"message.timestamp.type": "LogAppendTime"})
    produce(cluster.bootstrap_servers, topic, [{"value": b"v", "timestamp": 1_000}])
    message = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 1)[0]
    timestamp_type, timestamp_ms = message.timestamp()
    assert timestamp_type == 2
    assert timestamp_ms > 1_600_000_000_000


@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
def test_compression_type_of_the_topic_recompresses(
    cluster: LocalCluster, new_topic_name: NewName, codec: str
) -> None:
    """A topic's compression.type other than `producer` is honoured whatever the producer sends."""
    topic = new_topic_name("recompressed")
    create_topic(cluster.bootstrap_servers, topic, config={"compression.type": codec})
    records = [{"key": b"%d" % number, "value": b"value " * 50} for number in range(100)]
    produce(cluster.bootstrap_servers, topic, records, **{"compression.type": "lz4"})
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 100)
    assert [(m.key(), m.value()) for m in messages] == [(r["key"], r["value"]) for r in records]
