"""Unmodified consumers with a client.rack read from the replica in that rack (KIP-392)."""

from collections.abc import Callable
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import admin_client, consume, create_topic, produce

NewName = Callable[[str], str]
RECORDS: Final = 500


@pytest.fixture
def topic(cluster: LocalCluster, new_topic_name: NewName) -> str:
    """A topic of one partition and of `RECORDS` records."""
    topic = new_topic_name("near")
    create_topic(cluster.bootstrap_servers, topic)
    written = [{"value": str(number)} for number in range(RECORDS)]
    produce(cluster.bootstrap_servers, topic, written)
    return topic


def follower_of(cluster: LocalCluster, topic: str) -> int:
    partition = admin_client(cluster.bootstrap_servers).list_topics(topic).topics[topic].partitions[0]
    wait_for(lambda: len(partition.isrs) == 3, "all replicas are in sync")
    return next(broker for broker in partition.isrs if broker != partition.leader)


def test_librdkafka_reads_from_the_follower_in_its_rack(cluster: LocalCluster, topic: str) -> None:
    """The leader gives it nothing: all that comes is the follower's."""
    rack = f"rack-{follower_of(cluster, topic)}"
    assigned = [TopicPartition(topic, 0, 0)]
    read = consume(cluster.bootstrap_servers, assigned, RECORDS, **{"client.rack": rack})
    assert [message.value() for message in read] == [b"%d" % number for number in range(RECORDS)]


def test_java_consumer_reads_from_the_follower_in_its_rack(
    cluster: LocalCluster, topic: str, kafka_program: KafkaProgram
) -> None:
    """A group of Kafka's console consumer."""
    rack = f"rack-{follower_of(cluster, topic)}"
    shown = kafka_program(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(RECORDS), "--timeout-ms", "20000"),
        *("--command-property", f"client.rack={rack}"),
    ).stdout
    assert shown.splitlines() == [str(number) for number in range(RECORDS)]
