"""Unmodified clients in transactions: all or nothing, whoever dies, and one producer at a time."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from sparklog.executor.coordinators.transactions.machine.metadata import EPOCH_BUMP_VERSION, TransactionState
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tests.cluster import LocalCluster
from tests.compat.kafka_programs import DUMP_LOG_SEGMENTS, KafkaProgram
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic, produce

NewName = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own: one of its brokers is killed in the last test."""
    config = {
        "min.insync.replicas": "2",
        "num.partitions": "1",
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    with LocalCluster(brokers=3, config=config) as running:
        yield running


def producer_of(cluster: LocalCluster, transactional_id: str, **config: object) -> Producer:
    """Return a producer that may begin."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": 2,
            **config,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def committed(cluster: LocalCluster, topic: str, count: int) -> list[bytes | None]:
    """Return the first records that a reader of committed records sees."""
    messages = consume(
        cluster.bootstrap_servers,
        [TopicPartition(topic, 0, OFFSET_BEGINNING)],
        count,
        **{"isolation.level": "read_committed"},
    )
    return [message.value() for message in messages]


def test_transactions_are_seen_whole_or_not_at_all(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """Committed ones in every partition, aborted ones in none, whatever was flushed of them."""
    topics = [new_topic_name("whole"), new_topic_name("whole")]
    for topic in topics:
        create_topic(cluster.bootstrap_servers, topic)
    producer = producer_of(cluster, topics[0])
    for number in range(6):
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, b"%d" % number)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    for topic in topics:
        produce(cluster.bootstrap_servers, topic, [{"value": b"end"}])
        assert committed(cluster, topic, 4) == [b"0", b"2", b"4", b"end"]


def test_zombie_is_fenced_when_its_successor_has_begun(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """What it had open is aborted, and it can commit nothing more."""
    topic = new_topic_name("zombie")
    create_topic(cluster.bootstrap_servers, topic)
    zombie = producer_of(cluster, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush(TIMEOUT_S)
    successor = producer_of(cluster, topic)
    successor.begin_transaction()
    successor.produce(topic, b"successor")
    successor.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(TIMEOUT_S)
    error: KafkaError = fenced.value.args[0]
    assert error.code() == KafkaError._FENCED and error.fatal()
    assert committed(cluster, topic, 1) == [b"successor"]


def test_transaction_past_its_time_out_is_aborted(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """Its producer hangs: readers get past it, and it learns that it was given up."""
    topic = new_topic_name("timeout")
    create_topic(cluster.bootstrap_servers, topic)
    producer = producer_of(cluster, topic, **{"transaction.timeout.ms": 1_000})
    producer.begin_transaction()
    producer.produce(topic, b"late")
    producer.flush(TIMEOUT_S)
    produce(cluster.bootstrap_servers, topic, [{"value": b"after"}])
    # The read ends only when the transaction has.
    assert committed(cluster, topic, 1) == [b"after"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)


def test_consumed_transformed_and_produced_is_committed_with_its_offsets(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """Exactly once: what is aborted, or open when its producer is replaced, has neither output nor offsets.

    The producer that was replaced had sent both, and can't commit them any more.
    """
    source, target = new_topic_name("source"), new_topic_name("target")
    for topic in (source, target):
        create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, source, [{"value": b"%d" % number} for number in range(30)])
    producer = producer_of(cluster, target)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": target,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )

    def copied() -> int:
        (found,) = consumer.committed([TopicPartition(source, 0)], TIMEOUT_S)
        return max(found.offset, 0)

    for round_number, copied_before in enumerate((0, 10, 10, 10, 20)):
        first = copied()
        assert first == copied_before
        consumer.assign([TopicPartition(source, 0, first)])
        messages = consumer.consume(10, TIMEOUT_S)
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        after = TopicPartition(source, 0, messages[-1].offset() + 1)
        producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata(), TIMEOUT_S)
        if round_number == 1:
            producer.abort_transaction(TIMEOUT_S)
        elif round_number == 2:
            producer.flush(TIMEOUT_S)
            zombie, producer = producer, producer_of(cluster, target)
            with pytest.raises(KafkaException) as fenced:
                zombie.commit_transaction(TIMEOUT_S)
            assert fenced.value.args[0].code() == KafkaError._FENCED
        else:
            producer.commit_transaction(TIMEOUT_S)
        consumer.unassign()
    assert copied() == 30
    consumer.close()
    assert committed(cluster, target, 30) == [b"%d" % number for number in range(30)]


def test_kafkas_own_producer_has_an_epoch_for_each_transaction_and_kafkas_tool_reads_the_log(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """The Java client speaks version 2 of transactions (KIP-890); librdkafka does not."""
    topic = new_topic_name("java")
    create_topic(cluster.bootstrap_servers, topic)
    output = kafka_program(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--payload-monotonic"),
        *("--num-records", "1000", "--throughput", "1000", "--transactional-id", topic),
        *("--transaction-duration-ms", "100"),
    ).stdout
    assert "1000 records sent" in output
    assert committed(cluster, topic, 1_000) == [b"%d" % number for number in range(1_000)]
    partition = partition_for(topic, 3)
    leader = cluster.leader(TRANSACTION_STATE_TOPIC, partition)
    assert leader is not None
    segment = cluster.broker_directory(leader) / f"{TRANSACTION_STATE_TOPIC}-{partition}" / f"{0:020}.log"
    dump = kafka_program(DUMP_LOG_SEGMENTS, "--transaction-log-decoder", "--files", str(segment)).stdout
    values = [
        json.loads(line.rpartition("payload: ")[2])["data"]
        for line in dump.splitlines()
        if f'"{topic}"' in line
    ]
    completed = [value for value in values if value["transactionStatus"] == TransactionState.COMPLETE_COMMIT]
    assert [value["producerEpoch"] for value in completed] == list(range(1, len(completed) + 1))
    assert {value["clientTransactionVersion"] for value in completed} == {EPOCH_BUMP_VERSION}


def test_kafkas_tool_reads_what_a_group_is_and_what_it_has_committed(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram
) -> None:
    """Operators look there when all else fails: groups and offsets are in the topic as Kafka's would be."""
    topic = new_topic_name("dumped")
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"%d" % number} for number in range(7)])
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(7, TIMEOUT_S)) == 7
    consumer.commit(asynchronous=False)
    member_id = consumer.memberid()
    consumer.close()
    partition = partition_for(topic, 3)
    leader = cluster.leader(CONSUMER_OFFSETS_TOPIC, partition)
    assert leader is not None
    segment = cluster.broker_directory(leader) / f"{CONSUMER_OFFSETS_TOPIC}-{partition}" / f"{0:020}.log"
    dump = kafka_program(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--files", str(segment)).stdout
    decoded = [
        (json.loads(key)["data"], json.loads(value)["data"])
        for key, value in re.findall(r" key: (\{.*\}) payload: (\{.*\})$", dump, re.MULTILINE)
        if f'"{topic}"' in key
    ]
    (committed_offset,) = [value for key, value in decoded if "partition" in key]
    assert ({"group": topic, "topic": topic, "partition": 0}, committed_offset) in decoded
    assert committed_offset["offset"] == 7
    groups = [value for key, value in decoded if key == {"group": topic}]
    with_members = [value for value in groups if value["members"]]
    assert {(value["protocolType"], value["leader"]) for value in with_members} == {("consumer", member_id)}
    (member,) = with_members[-1]["members"]
    assert member["subscription"]["topics"] == [topic]
    assert member["assignment"]["assignedPartitions"] == [{"topic": topic, "partitions": [0]}]
    assert groups[-1]["members"] == []  # it has left


def test_transaction_decided_before_its_coordinator_was_killed_is_finished_by_the_next(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """The partition was away when markers were sent, and then their sender died: it is committed still."""
    topic = new_topic_name("decided")
    transactional_id = topic
    producer_of(cluster, transactional_id)
    state_partition = partition_for(transactional_id, 3)
    coordinator = cluster.leader(TRANSACTION_STATE_TOPIC, state_partition)
    assert coordinator is not None
    away = next(broker_id for broker_id in cluster.broker_ids if broker_id != coordinator)
    new = NewTopic(topic, 1, replica_assignment=[[away]], config={"min.insync.replicas": "1"})
    admin = admin_client(cluster.bootstrap_servers)
    for future in admin.create_topics([new]).values():
        future.result(TIMEOUT_S)
    producer = producer_of(cluster, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, b"decided")
    assert producer.flush(TIMEOUT_S) == 0
    cluster.kill(away)
    producer.commit_transaction(TIMEOUT_S)
    cluster.kill(coordinator)
    cluster.launch(away)
    cluster.wait_until_unfenced(away)
    assert committed(cluster, topic, 1) == [b"decided"]
    successor = cluster.leader(TRANSACTION_STATE_TOPIC, state_partition)
    assert successor not in (None, coordinator)
    cluster.restart(coordinator)
    # Nothing of it is left to be done: the id begins its next transaction.
    again = producer_of(cluster, transactional_id)
    again.begin_transaction()
    again.produce(topic, b"next")
    again.commit_transaction(TIMEOUT_S)
    assert committed(cluster, topic, 2) == [b"decided", b"next"]
