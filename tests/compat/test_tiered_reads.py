"""Clients read what only the object store has, as they read everything else."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic, produce
from tests.compat.tiering import LOCAL_FEW, leader_local_start, tiered_config, wait_for_copy

VALUE = bytes(1000)
TAIL = 2500
"""Records that come last: more than one segment, which stays on disks."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[LocalCluster]:
    with LocalCluster(config=tiered_config(store)) as cluster:
        yield cluster


def produce_transactions(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    """Write transactions of 300 records, every second one aborted; return the keys of those committed."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "linger.ms": 2}
    )
    producer.init_transactions(TIMEOUT_S)
    committed: list[bytes] = []
    for number in range(count):
        producer.begin_transaction()
        keys = [b"%d-%d" % (number, record) for record in range(300)]
        for key in keys:
            producer.produce(topic, key=key, value=VALUE)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            committed += keys
    return committed


def tail() -> list[dict[str, Any]]:
    return [{"key": b"tail-%d" % number, "value": VALUE} for number in range(TAIL)]


@pytest.fixture(scope="module")
def transactions(cluster: LocalCluster, store: Path) -> list[bytes]:
    """The keys of the committed records of topic `transactions`, which are in the tier alone."""
    create_topic(cluster.bootstrap_servers, "transactions", config=LOCAL_FEW)
    committed = produce_transactions(cluster, "transactions", 10)
    produce(cluster.bootstrap_servers, "transactions", tail())
    end = 10 * 301 + TAIL
    wait_for_copy(cluster, store, "transactions", end)
    wait_for(lambda: leader_local_start(cluster, "transactions") >= 10 * 301, "they are cut", TIMEOUT_S)
    return committed


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_not_in_the_tier(
    cluster: LocalCluster, transactions: list[bytes], isolation_level: str
) -> None:
    """Readers of either level see the committed ones, in order, and get past the others to the local log."""
    read = consume(
        cluster.bootstrap_servers,
        [TopicPartition("transactions", 0, 0)],
        len(transactions) + TAIL,
        **{"isolation.level": isolation_level},
    )
    assert [message.key() for message in read] == [*transactions, *(record["key"] for record in tail())]


def test_kafkas_own_consumer_and_tools_know_the_tier(
    cluster: LocalCluster, transactions: list[bytes], kafka_program: KafkaProgram
) -> None:
    """kafka-console-consumer reads from the first record on, kafka-get-offsets names the parts."""
    end = 10 * 301 + TAIL
    topic = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "transactions"]

    def offset(time: str) -> int:
        ran = kafka_program("org.apache.kafka.tools.GetOffsetShell", *topic, "--time", time)
        found = re.search(r"^transactions:0:(\d+)$", ran.stdout, re.MULTILINE)
        assert found is not None, ran.stdout + ran.stderr
        return int(found[1])

    assert (offset("earliest"), offset("latest")) == (0, end)
    assert 10 * 301 <= offset("earliest-local") < end
    assert offset("latest-tiered") == end - 1
    count = len(transactions) + TAIL
    options = ["--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000"]
    options += ["--isolation-level", "read_committed"]
    options += ["--formatter-property", "print.key=true", "--formatter-property", "print.value=false"]
    ran = kafka_program("org.apache.kafka.tools.consumer.ConsoleConsumer", *topic, *options)
    keys = [*transactions, *(record["key"] for record in tail())]
    assert ran.stdout.split() == [key.decode() for key in keys]


def test_consumer_waits_for_objects_that_are_gone_for_a_while(cluster: LocalCluster, store: Path) -> None:
    """It gets no error and skips nothing: the records are there, only not now."""
    create_topic(cluster.bootstrap_servers, "patient", config=LOCAL_FEW)
    produce(cluster.bootstrap_servers, "patient", tail())
    wait_for_copy(cluster, store, "patient", TAIL)
    wait_for(lambda: leader_local_start(cluster, "patient") > TAIL // 3, "the disk is relieved", TIMEOUT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    (objects,) = store.glob("segments/patient-*")
    away = objects.rename(store / "away")
    try:
        consumer.assign([TopicPartition("patient", 0, 0)])
        assert consumer.poll(3.0) is None
    finally:
        away.rename(objects)
    read = []
    try:
        while len(read) < TAIL:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None, message.error()
            read.append(message.key())
    finally:
        consumer.close()
    assert read == [record["key"] for record in tail()]
