"""Everything that a topic has, as a consumer sees it that reads committed records."""

from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

TIMEOUT_S: Final = 30.0
AT_ONCE: Final = 10_000


def committed_records(
    bootstrap_servers: str,
    topic: str,
    partitions: int = 1,
    *,
    group_id: str = "unused",
    offset: int = OFFSET_BEGINNING,
) -> list[list[Message]]:
    """Return the records of each partition from `offset` to its end at this moment, in order.

    Raises:
        KafkaException: the topic can't be read.
        AssertionError: a partition did not come to its end.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[list[Message]] = [[] for _ in range(partitions)]
    open_partitions = set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for partition in range(partitions)])
        while open_partitions:
            messages = _some(consumer)
            assert messages, f"{topic}: partitions {open_partitions} did not come to their end"
            for message in messages:
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[partition].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(partition)
                else:
                    raise AssertionError(f"{topic}-{partition}: {error}")
    finally:
        consumer.close()
    return found


def committed_values(bootstrap_servers: str, topic: str, partitions: int = 1) -> list[list[bytes]]:
    """Return the values of `committed_records`."""
    records = committed_records(bootstrap_servers, topic, partitions)
    return [[message.value() or b"" for message in partition] for partition in records]


def _some(consumer: Consumer) -> list[Message]:
    """Return what comes next, at least one message or event unless nothing comes for TIMEOUT_S."""
    first = consumer.poll(TIMEOUT_S)
    return [] if first is None else [first, *consumer.consume(AT_ONCE, 0)]
