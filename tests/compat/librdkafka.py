"""What the tests with confluent-kafka have in common."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.advertised_metadata import wait_until_all_tell_of
from tests.cluster import wait_for

TIMEOUT_S = 45.0


def admin_client(bootstrap_servers: str) -> AdminClient:
    """Return an admin client."""
    return AdminClient({"bootstrap.servers": bootstrap_servers})


def create_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 3,
    config: dict[str, str] | None = None,
) -> None:
    """Create a topic and wait until every broker tells of the leaders of all its partitions, and these lead.

    A client would try again when a leader has not opened its log yet; requests of the tests' own do not.

    Raises:
        KafkaException: the cluster refused.
        ClusterError: not every broker heard of it.
    """
    admin = admin_client(bootstrap_servers)
    new = NewTopic(topic, partitions, replication_factor, config=config or {})
    for future in admin.create_topics([new]).values():
        future.result(TIMEOUT_S)
    wait_until_all_tell_of(bootstrap_servers, topic, partitions)
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
    wait_for(
        lambda: all(offset.exception(TIMEOUT_S) is None for offset in admin.list_offsets(asked).values()),
        f"all partitions of {topic} are led",
        TIMEOUT_S,
    )


def produce(
    bootstrap_servers: str,
    topic: str,
    records: Sequence[dict[str, Any]],
    **config: Any,
) -> list[Message]:
    """Produce the records (arguments of `Producer.produce`) once; return the acknowledgements in order."""
    acknowledged: list[Message] = []
    failed: list[Any] = []

    def delivered(error: Any, message: Message) -> None:
        if error is None:
            acknowledged.append(message)
        else:
            failed.append(error)

    # What is sent again when an answer was lost would be there twice otherwise, and be counted by the test.
    given = {"bootstrap.servers": bootstrap_servers, "linger.ms": 2, "enable.idempotence": True}
    producer = Producer({**given, **config})
    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    assert not failed, failed
    assert left == 0, f"{left} records were not acknowledged"
    return acknowledged


def consume(
    bootstrap_servers: str,
    assignment: Sequence[TopicPartition],
    count: int,
    **config: Any,
) -> list[Message]:
    """Return the first `count` records that the assigned partitions give."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    messages: list[Message] = []
    try:
        consumer.assign(list(assignment))
        deadline = time.monotonic() + TIMEOUT_S
        while len(messages) < count:
            assert time.monotonic() < deadline, f"{len(messages)} of {count} records were read"
            for message in consumer.consume(min(count - len(messages), 10_000), timeout=0.2):
                assert message.error() is None, message.error()
                messages.append(message)
    finally:
        consumer.close()
    return messages
