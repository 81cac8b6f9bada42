"""What transactions are to a partition and its readers, with librdkafka and Kafka's own tool."""

import asyncio
import importlib
import re
import subprocess
import time
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from sparklog.node.calling.channel import Channel
from sparklog.protocol.errors import ErrorCode
from tests.cluster import LocalCluster
from tests.compat.kafka_jvm import KafkaJvm
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic
from tests.unit.executor.requests import MILLISECOND, batch, rows

NewName = Callable[[str], str]
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
GHOST_ID = 987_654_321
"""A producer id that nobody gave out."""


def transactional(cluster: LocalCluster, transactional_id: str) -> Producer:
    """Return a producer whose transactions may begin."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def committed(cluster: LocalCluster, topic: str) -> list[tuple[int, bytes | None]]:
    """Return offsets and values of what a reader of committed records gets from partition 0 at once."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[tuple[int, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert time.monotonic() < deadline, f"no end of {topic}, after {found}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:  # the end of what is stable
                return found
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.value()))
    finally:
        consumer.close()


def test_interleaved_transactions_are_read_each_as_a_whole_in_the_order_of_offsets(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Readers of committed records wait for the first that is open, and never see one that was aborted."""
    topic = new_topic_name("interleaved")
    create_topic(cluster.bootstrap_servers, topic)
    first, second, third = (transactional(cluster, f"{topic}-{number}") for number in range(3))
    for producer in (first, second, third):
        producer.begin_transaction()
    for producer, value in (
        (first, b"first"),
        (second, b"second"),
        (third, b"aborted"),
        (first, b"first again"),
        (second, b"second again"),
    ):
        producer.produce(topic, value)
        assert producer.flush(TIMEOUT_S) == 0
    second.commit_transaction(TIMEOUT_S)
    third.abort_transaction(TIMEOUT_S)
    assert committed(cluster, topic) == []
    first.commit_transaction(TIMEOUT_S)
    # An end is answered when it is decided; it is marked in the partition, and so read, a moment later.
    wanted = [(0, b"first"), (1, b"second"), (3, b"first again"), (4, b"second again")]
    seen: list[tuple[int, bytes | None]] = []
    while len(seen) < len(wanted):
        seen = committed(cluster, topic)
        assert seen == wanted[: len(seen)]
    everything = consume(
        cluster.bootstrap_servers,
        [TopicPartition(topic, 0, OFFSET_BEGINNING)],
        5,
        **{"isolation.level": "read_uncommitted"},
    )
    assert [message.value() for message in everything][2] == b"aborted"


@pytest.mark.usefixtures("kafka_program")
def test_hanging_transaction_is_found_and_ended_with_kafkas_tool_which_shows_others(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Nobody else would end it: readers of committed records would wait for ever (KIP-664).

    One that a coordinator knows is listed and described.
    """
    topic = new_topic_name("hanging")
    create_topic(cluster.bootstrap_servers, topic)
    leader = cluster.leader(topic)
    assert leader is not None
    _verify(cluster, leader, enabled=False)
    try:
        _begin_unknown_transaction(cluster, leader, topic)
    finally:
        _verify(cluster, leader, enabled=True)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"behind")
    assert producer.flush(TIMEOUT_S) == 0
    assert committed(cluster, topic) == []

    def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
        bootstrap = ("--bootstrap-server", cluster.bootstrap_servers)
        return jvm.run(TRANSACTIONS_COMMAND, *bootstrap, *arguments)

    # The command leaves its connections to the end of its process, so it has one of its own.
    with KafkaJvm() as jvm:
        # A broker is asked about all partitions that it has, as a follower too; then the coordinators are.
        follower = next(broker_id for broker_id in cluster.broker_ids if broker_id != leader)
        found = tool("find-hanging", "--broker-id", str(follower), "--max-transaction-timeout", "0").stdout
        (row,) = re.findall(rf"^{topic}\s+(\d+)\s+(\d+)\s+(\d+)\s+(-?\d+)\s+(\d+)", found, re.MULTILINE)
        assert row == ("0", str(GHOST_ID), "3", "-1", "0")
        tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert committed(cluster, topic) == [(1, b"behind")]
        transactional_id = f"{topic}-known"
        known = transactional(cluster, transactional_id)
        known.begin_transaction()
        known.produce(topic, b"known")
        assert known.flush(TIMEOUT_S) == 0
        listed = rf"^{transactional_id}\s+(\d+)\s+(\d+)\s+Ongoing\s*$"
        ((coordinator, producer_id),) = re.findall(listed, tool("list").stdout, re.MULTILINE)
        described = (
            tool("describe", "--transactional-id", transactional_id).stdout.splitlines()[-1].split("\t")
        )
        values = [value.strip() for value in described]
        assert values[:6] == [coordinator, transactional_id, producer_id, "0", "Ongoing", "60000"]
        assert values[8] == f"{topic}-0"
        known.abort_transaction(TIMEOUT_S)


def _verify(cluster: LocalCluster, broker_id: int, *, enabled: bool) -> None:
    """Have a broker ask coordinators before a transaction begins in a partition, or not."""
    entry = ConfigEntry(
        "transaction.partition.verification.enable",
        str(enabled).lower(),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])
    admin = admin_client(cluster.bootstrap_servers)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)


def _begin_unknown_transaction(cluster: LocalCluster, leader: int, topic: str) -> None:
    """Append the first batch of a transaction that no coordinator knows, as brokers did before KIP-890."""
    module = importlib.import_module("kio.schema.produce.v11.request")
    records = batch(producer_id=GHOST_ID, producer_epoch=3, base_sequence=0, transactional=True)
    data = module.PartitionProduceData(index=0, records=records)
    request = module.ProduceRequest(
        transactional_id="ghost",
        acks=-1,
        timeout=10_000 * MILLISECOND,
        topic_data=(module.TopicProduceData(name=topic, partition_data=(data,)),),
    )

    async def send() -> None:
        channel = await Channel.connect(*cluster.address(leader), "test")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    (row,) = rows(await channel.request(request))
                    if row.error_code is ErrorCode.none:
                        return
                    # The broker has not heard yet that it need not ask.
                    assert row.error_code in (
                        ErrorCode.not_enough_replicas,
                        ErrorCode.invalid_txn_state,
                        ErrorCode.invalid_producer_id_mapping,
                    )
                    await asyncio.sleep(0.05)
        finally:
            channel.close()

    asyncio.run(send())
