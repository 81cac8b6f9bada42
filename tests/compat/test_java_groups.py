"""Kafka's own Java programs that join groups, look at them, and copy in transactions."""

import contextlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic, produce

NewName = Callable[[str], str]

PARTITIONS: Final = 2
RECORDS: Final = 400
TOOLS: Final = "org.apache.kafka.tools"


def written(cluster: LocalCluster, topic: str) -> None:
    """Create a topic with RECORDS records, numbered, in turn in each of its partitions."""
    create_topic(cluster.bootstrap_servers, topic, PARTITIONS)
    records = [{"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(RECORDS)]
    produce(cluster.bootstrap_servers, topic, records)


def committed_offsets(cluster: LocalCluster, group: str, topic: str) -> list[int]:
    """Return what a group has committed, by partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(asked, TIMEOUT_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumer_reads_each_record_once_and_commits(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram, protocol: str
) -> None:
    """The Java consumer in a group of its own, by the protocol before KIP-848 and by that one's."""
    topic = new_topic_name("verifiable")
    written(cluster, topic)
    output = kafka_program(
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", topic),
        *("--group-protocol", protocol, "--reset-policy", "earliest", "--max-messages", str(RECORDS)),
    ).stdout
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    read = [row for event in events if event["name"] == "records_consumed" for row in event["partitions"]]
    for partition in range(PARTITIONS):
        # Runs of offsets, each of which begins where the one before has ended.
        next_offset = 0
        for row in read:
            if row["partition"] == partition:
                assert row["minOffset"] == next_offset
                next_offset = row["maxOffset"] + 1
        assert next_offset == RECORDS // PARTITIONS
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert committed_offsets(cluster, topic, topic) == [RECORDS // PARTITIONS] * PARTITIONS


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_static_member_that_restarts_goes_on_and_a_member_of_librdkafka_notices_nothing(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram, protocol: str
) -> None:
    """Two clients that share no code share a group: one joins, ends, and has its place again (KIP-345)."""
    topic = new_topic_name("static")
    written(cluster, topic)
    rebalances: list[list[int]] = []

    def rebalanced(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
        rebalances.append([each.partition for each in partitions])

    def restarted() -> tuple[set[int], list[int]]:
        """Return what a program that reads 100 records had of the group, and the offsets that it read."""
        return static_member(cluster, kafka_program, topic, protocol, records=100)

    stays = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | ({"heartbeat.interval.ms": 200} if protocol == "classic" else {})
    )
    with contextlib.closing(stays), ThreadPoolExecutor(1) as beside:
        stays.subscribe([topic], on_assign=rebalanced, on_revoke=rebalanced)

        def polled_until(look: Callable[[], bool], what: str) -> None:
            wait_for(lambda: (stays.poll(0.05), look())[1], what, timeout_s=3 * TIMEOUT_S)

        polled_until(lambda: len(stays.assignment()) == PARTITIONS, "all assigned")
        first = beside.submit(restarted)
        polled_until(first.done, "the static member has read")
        (kept,) = {each.partition for each in stays.assignment()}
        assert first.result() == ({1 - kept}, [*range(100)])
        noticed = len(rebalances)
        again = beside.submit(restarted)
        polled_until(again.done, "it has read again")
        assert again.result() == ({1 - kept}, [*range(100, 200)])
        assert rebalances[noticed:] == []


def static_member(
    cluster: LocalCluster, kafka_program: KafkaProgram, group: str, protocol: str, records: int
) -> tuple[set[int], list[int]]:
    """Have a static member read; return the partitions that it was assigned, and the offsets that it read."""
    output = kafka_program(
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", group, "--group-id", group),
        *("--group-protocol", protocol, "--group-instance-id", "java", "--max-messages", str(records)),
    ).stdout
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assigned = [event["partitions"] for event in events if event["name"] == "partitions_assigned"]
    read = [row for event in events if event["name"] == "records_consumed" for row in event["partitions"]]
    return (
        {row["partition"] for row in assigned[-1]},
        [offset for row in read for offset in range(row["minOffset"], row["maxOffset"] + 1)],
    )


def test_consumer_performance_reads_all_as_a_member_of_either_protocol(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """What people measure clusters with, our own benchmarks included."""
    topic = new_topic_name("performance")
    written(cluster, topic)
    for protocol in ("classic", "consumer"):
        output = kafka_program(
            f"{TOOLS}.ConsumerPerformance",
            *(
                "--bootstrap-server",
                cluster.bootstrap_servers,
                "--topic",
                topic,
                "--group",
                f"{topic}-{protocol}",
            ),
            *(
                "--num-records",
                str(RECORDS),
                "--hide-header",
                "--command-property",
                f"group.protocol={protocol}",
            ),
        ).stdout
        assert output.splitlines()[-1].split(", ")[4] == str(RECORDS), output


def test_consumer_group_command_shows_members_moves_offsets_and_deletes(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """kafka-consumer-groups is what operators look at first, for groups of both protocols at once."""
    topic = new_topic_name("command")
    written(cluster, topic)
    groups = {protocol: f"{topic}-{protocol}" for protocol in ("classic", "consumer")}

    def command(*arguments: str) -> str:
        named = [each for group in groups.values() for each in ("--group", group)]
        bootstrap = ("--bootstrap-server", cluster.bootstrap_servers)
        program = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
        return kafka_program(program, *bootstrap, *named, *arguments).stdout

    members = {}
    for protocol, group in groups.items():
        members[protocol] = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": f"{protocol}-member",
                "auto.offset.reset": "latest",
                "enable.auto.commit": False,
            }
        )
        members[protocol].subscribe([topic])
    for member in members.values():
        wait_for(lambda member=member: member.poll(0.1) or member.assignment(), "the assignment")  # type: ignore[misc]
        member.commit(offsets=[TopicPartition(topic, 0, 150)], asynchronous=False)
    shown = [line.split() for line in command("--describe", "--offsets").splitlines()]
    for protocol, group in groups.items():
        rows = {row[2]: row for row in shown if row[:1] == [group]}
        assert rows["0"][3:6] == ["150", "200", "50"], shown
        assert rows["1"][3:6] == ["-", "200", "-"], shown
        assert {row[8] for row in rows.values()} == {f"{protocol}-member"}
    for member in members.values():
        member.close()
    command("--topic", topic, "--reset-offsets", "--to-offset", "100", "--execute")
    for group in groups.values():
        assert committed_offsets(cluster, group, topic) == [100, 100]
    assert "was successful" in command("--delete")
    for group in groups.values():
        assert all(offset < 0 for offset in committed_offsets(cluster, group, topic))


def test_transactional_message_copier_copies_each_record_once_in_order_whatever_it_aborts(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """Kafka's own system tests judge exactly once by this program: offsets and output are one."""
    source, target = new_topic_name("source"), new_topic_name("target")
    written(cluster, source)
    create_topic(cluster.bootstrap_servers, target, PARTITIONS)
    output = kafka_program(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", cluster.bootstrap_servers, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--consumer-group", target, "--transactional-id", target),
        *("--transaction-size", "25", "--enable-random-aborts", "--group-mode", "--use-group-metadata"),
    ).stdout
    assert json.loads(output.splitlines()[-1])["remaining"] == 0
    for partition in range(PARTITIONS):
        messages = consume(
            cluster.bootstrap_servers,
            [TopicPartition(target, partition, OFFSET_BEGINNING)],
            RECORDS // PARTITIONS,
            **{"isolation.level": "read_committed"},
        )
        numbers = [int(message.value() or b"") for message in messages]
        assert numbers == list(range(partition, RECORDS, PARTITIONS))
    assert committed_offsets(cluster, target, source) == [RECORDS // PARTITIONS] * PARTITIONS
