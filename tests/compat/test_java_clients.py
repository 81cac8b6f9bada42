"""Kafka's own Java clients, in the programs that Kafka ships: producers, consumers and admin commands."""

import re
from collections.abc import Callable
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from tests.advertised_metadata import shown_in_time, wait_until_all_tell_of
from tests.cluster import LocalCluster
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import consume, create_topic, produce

NewName = Callable[[str], str]

PARTITIONS: Final = 3
RECORDS: Final = 5_000
TOOLS: Final = "org.apache.kafka.tools"


def addresses(cluster: LocalCluster, node: str) -> str:
    """Return what a client is told to begin with: the controller's address or the brokers'."""
    return {
        "controller": cluster.controller.bootstrap_servers,
        "brokers": cluster.bootstrap_servers,
    }[node]


def stored_batches(cluster: LocalCluster, topic: str, partition: int) -> list[BatchHeader]:
    """Return the headers of the batches that the partition's leader has on disk; no file before the first."""
    leader = cluster.leader(topic, partition)
    assert leader is not None
    segment = cluster.broker_directory(leader) / f"{topic}-{partition}" / f"{0:020}.log"
    return [header for _, header in iterate_headers(segment.read_bytes())] if segment.exists() else []


@pytest.mark.parametrize("node", ["controller", "brokers"])
def test_producer_performance_from_either_address_stores_each_record_once(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram, node: str
) -> None:
    """The Java producer is idempotent unless told otherwise, and may ask any node for its producer id."""
    topic = new_topic_name("java")
    create_topic(cluster.bootstrap_servers, topic, PARTITIONS)
    output = kafka_program(
        f"{TOOLS}.ProducerPerformance",
        *("--bootstrap-server", addresses(cluster, node), "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(RECORDS), "--payload-monotonic"),
    ).stdout
    assert f"{RECORDS} records sent" in output
    partitions = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    messages = consume(cluster.bootstrap_servers, partitions, RECORDS)
    assert sorted(int(message.value() or b"") for message in messages) == list(range(RECORDS))
    batches = [batch for number in range(PARTITIONS) for batch in stored_batches(cluster, topic, number)]
    assert {(batch.has_producer_id, batch.producer_epoch) for batch in batches} == {(True, 0)}
    assert len({batch.producer_id for batch in batches}) == 1


def test_end_to_end_latency_gets_each_record_back(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """One record at a time, there and back: the Java consumer with its partition assigned."""
    topic = new_topic_name("java")
    create_topic(cluster.bootstrap_servers, topic)
    shown = kafka_program(
        f"{TOOLS}.EndToEndLatency",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--num-records", "200"),
        *("--producer-acks", "all", "--record-size", "100"),
    ).stdout
    assert "Percentiles: 50th = " in shown, shown
    assert sum(batch.record_count for batch in stored_batches(cluster, topic, 0)) == 200


def test_console_consumer_shows_all_of_a_record(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """Key, value, headers, offset and timestamp reach a Java consumer as another client wrote them."""
    topic = new_topic_name("java")
    create_topic(cluster.bootstrap_servers, topic)
    records = [
        {
            "key": f"k{number}",
            "value": f"v{number}",
            "headers": [("h", b"%d" % number), ("n", None)],
            "timestamp": 1_357_016_400_000 + number,
        }
        for number in range(3)
    ]
    produce(cluster.bootstrap_servers, topic, records)
    shown = kafka_program(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.controller.bootstrap_servers, "--topic", topic),
        *("--partition", "0", "--offset", "1", "--max-messages", "2", "--timeout-ms", "20000"),
        *(
            argument
            for name in ("timestamp", "offset", "headers", "key")
            for argument in ("--formatter-property", f"print.{name}=true")
        ),
    ).stdout
    assert shown.splitlines() == [
        f"CreateTime:{1_357_016_400_000 + number}\tOffset:{number}\th:{number},n:null\tk{number}\tv{number}"
        for number in (1, 2)
    ]


def test_console_producer_writes_what_a_console_consumer_of_a_group_shows(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """The first thing that anybody tries: lines in, lines out, and the next time only what is new."""
    topic = new_topic_name("java")
    create_topic(cluster.bootstrap_servers, topic)
    separated = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")

    def write(*lines: str) -> None:
        command = (f"{TOOLS}.ConsoleProducer", "--bootstrap-server", cluster.bootstrap_servers)
        kafka_program(*command, "--topic", topic, *separated, reads="\n".join(lines))

    def read(count: int) -> list[str]:
        return kafka_program(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group", topic),
            *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"),
            *("--formatter-property", "print.key=true"),
        ).stdout.splitlines()

    write("a:1", "b:2", "c:3")
    assert read(3) == ["a\t1", "b\t2", "c\t3"]
    write("d:4")
    assert read(1) == ["d\t4"]


def test_get_offset_shell_tells_where_partitions_end(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """The Java admin client's ListOffsets, asked of the controller's address."""
    topic = new_topic_name("java")
    create_topic(cluster.bootstrap_servers, topic, PARTITIONS)
    produce(
        cluster.bootstrap_servers, topic, [{"value": b"v", "partition": number % 2} for number in range(9)]
    )
    shown = kafka_program(
        f"{TOOLS}.GetOffsetShell",
        *("--bootstrap-server", cluster.controller.bootstrap_servers, "--topic", topic),
    ).stdout
    assert shown.splitlines() == [f"{topic}:0:5", f"{topic}:1:4", f"{topic}:2:0"]


def test_topic_command_creates_describes_and_deletes(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """kafka-topics is what operators' scripts call, with one address for everything."""
    topic = new_topic_name("java")

    def topics(node: str, *arguments: str) -> str:
        command = (f"{TOOLS}.TopicCommand", "--bootstrap-server", addresses(cluster, node), "--topic", topic)
        return kafka_program(*command, *arguments).stdout

    created = ("--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=4242424")
    topics("controller", "--create", *created)
    wait_until_all_tell_of(cluster.bootstrap_servers, topic, 2)
    partitions = cluster.image.topics.by_name[topic].partitions
    described = topics("brokers", "--describe").splitlines()
    assert re.search("PartitionCount: 2\tReplicationFactor: 3\tConfigs: .*retention.ms=4242424", described[0])
    assert [line.split("\t")[2:6] for line in described[1:]] == [
        [
            f"Partition: {number}",
            f"Leader: {partitions[number].leader}",
            *(f"{what}: {','.join(map(str, partitions[number].replicas))}" for what in ("Replicas", "Isr")),
        ]
        for number in (0, 1)
    ]
    topics("controller", "--delete")
    assert topic not in cluster.image.topics.by_name


def test_config_command_alters_and_describes(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """kafka-configs changes a topic while it is in use, and says where each value comes from."""
    topic = new_topic_name("java")
    create_topic(cluster.bootstrap_servers, topic)

    def configs(node: str, *arguments: str) -> str:
        command = ("kafka.admin.ConfigCommand", "--bootstrap-server", addresses(cluster, node))
        return kafka_program(*command, "--entity-type", "topics", "--entity-name", topic, *arguments).stdout

    configs("brokers", "--alter", "--add-config", "max.message.bytes=123456")
    assert cluster.image.topic_configs(topic) == {"max.message.bytes": "123456"}
    described = shown_in_time(
        lambda: configs("controller", "--describe"), "max.message.bytes=123456 sensitive=false"
    )
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=123456" in described
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in described
