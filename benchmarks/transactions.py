"""What transactions cost: one record each, copies of a topic, and idempotence alone."""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import clients
from benchmarks.case import PARTITIONS, RATIO, TOPICS, Case, Figure, Round
from benchmarks.clusters import ClusterUnderTest

COPIED = 75_000
"""Records of 100 bytes that are copied."""
COPIED_TOGETHER = 750
"""Records of one transaction."""
SINGLE = 300
"""Transactions of one record."""
IDEMPOTENT_RECORDS = 1_000_000
TIMEOUT_S = 120.0

_names = itertools.count()


def _transactional(cluster: ClusterUnderTest) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": f"benchmark-{next(_names)}",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


@contextlib.contextmanager
def single(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Transactions of one record, one after the other."""
    with TOPICS.one(cluster) as topic:

        def run() -> list[Figure]:
            producer = _transactional(cluster)
            sorted_ms = sorted(_one_ms(producer, topic, number) for number in range(SINGLE))
            return [
                Figure("transaction of one record, p99", "ms", sorted_ms[SINGLE * 99 // 100], "<= 1.0"),
                Figure("transaction of one record, p50", "ms", sorted_ms[SINGLE // 2]),
            ]

        yield run


def _one_ms(producer: Producer, topic: str, number: int) -> float:
    started_s = time.monotonic()
    producer.begin_transaction()
    producer.produce(topic, bytes(100), partition=number % PARTITIONS)
    producer.commit_transaction(TIMEOUT_S)
    return 1000 * (time.monotonic() - started_s)


@contextlib.contextmanager
def copy(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Consume, produce and commit offsets, 750 records a transaction."""
    with TOPICS.one(cluster) as source, TOPICS.one(cluster) as target:
        clients.librdkafka_performance(cluster, source, records=COPIED, record_bytes=100)

        def run() -> list[Figure]:
            name = f"transactional copy, {COPIED_TOGETHER} a transaction"
            return [Figure(name, "records/s", _copied_per_s(cluster, source, target), ">= 1.2")]

        yield run


def _copied_per_s(cluster: ClusterUnderTest, source: str, target: str) -> float:
    producer = _transactional(cluster)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"copier-{next(_names)}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
    )
    try:
        consumer.assign([TopicPartition(source, partition, 0) for partition in range(PARTITIONS)])
        started_s = time.monotonic()
        copied = 0
        while copied < COPIED:
            messages = consumer.consume(COPIED_TOGETHER, timeout=1.0)
            if messages:
                producer.begin_transaction()
                for message in messages:
                    producer.produce(target, message.value(), partition=message.partition())
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
                copied += len(messages)
            if time.monotonic() - started_s > TIMEOUT_S:
                raise RuntimeError(
                    f"{cluster.name}: {copied} of {COPIED} records copied in {TIMEOUT_S:.0f} s"
                )
        return copied / (time.monotonic() - started_s)
    finally:
        consumer.close()


@contextlib.contextmanager
def idempotent(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Produce with and without idempotence; one order of the two, then the other, against drift."""

    def seconds(idempotence: bool) -> float:
        with TOPICS.one(cluster) as topic:
            rate = clients.producer_performance(
                cluster, topic, records=IDEMPOTENT_RECORDS, record_bytes=100, idempotence=idempotence
            )
            return IDEMPOTENT_RECORDS / rate.records_per_s

    def run() -> list[Figure]:
        plain_s, with_it_s = seconds(False), seconds(True)
        with_it_s += seconds(True)
        plain_s += seconds(False)
        return [
            Figure("idempotent over plain produce", RATIO, plain_s / with_it_s, "ours >= 0.97"),
            Figure("idempotent produce, 100 B", "records/s", 2 * IDEMPOTENT_RECORDS / with_it_s),
            Figure("plain produce, 100 B", "records/s", 2 * IDEMPOTENT_RECORDS / plain_s),
        ]

    yield run


CASES: Mapping[str, Case] = {
    "transactions-copy": copy,
    "transactions-single": single,
}
