"""aiokafka against a live cluster: produce and consume with assigned partitions."""

import asyncio
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic

NewName = Callable[[str], str]


def test_aiokafka_idempotent_reads_what_it_wrote(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """A third client, with a protocol implementation of its own."""
    topic = new_topic_name("aio")
    create_topic(cluster.bootstrap_servers, topic)

    async def round_trip() -> list[bytes | None]:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, compression_type="gzip"
        ) as producer:
            futures = [await producer.send(topic, b"%d" % number) for number in range(500)]
            await asyncio.gather(*futures)
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, 0)])
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(500)]

    assert asyncio.run(round_trip()) == [b"%d" % number for number in range(500)]
