"""Acknowledgements while a cluster grows from three brokers to six and shrinks back, with a gigabyte to move.

    python -m benchmarks.scaling --brokers 6 --partitions 60 --megabytes-per-second 20 --gigabytes 1
    python -m benchmarks.scaling --throttle 10          # moves under a quota of replication
    python -m benchmarks.scaling --record-bytes 4000    # sixteen times as many batches

Brokers are processes of their own, each a rack; the driver is a thread of this one. A producer (librdkafka,
idempotent, acks=all), a process as well, first writes as fast as it can until the topic has its gigabyte, and
then at the rate. The size of the cluster is changed there and back, each time until no replica and no leader
moves any more. A silence is the time between two acknowledgements of a partition. In the end every record is
read: each acknowledged one must be there once.

Of a cluster under Spark it lacks the executors, whose start takes seconds and processors.

With linger.ms at its default and so many partitions, each record is a batch. The default size leaves some of
two processors to the six brokers: 5,000 batches of 4 kB a second take nine tenths of both before a replica
moves, and the figures then are those of too few processors.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.longest_stall import longest_stall_ms
from benchmarks.many_partitions import Figures
from sparklog.node.loop.garbage import freezing_survivors
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.protocol.types import BrokerId
from tests.cluster import LocalCluster, wait_for

TOPIC: Final = "scaled"
REPLICAS: Final = 3
NUMBER_BYTES: Final = 8
BEFORE_S: Final = 15.0
"""The time of writing before the size changes, with which that of the changes is compared."""
SETTLED_S: Final = 3.0
"""The time without a change of replicas or leaders after which a move is over; not counted."""
CHANGE_TIMEOUT_S: Final = 300.0
TIMEOUT_S: Final = 120.0
BEHIND_S: Final = 1.0
"""A producer that is further behind its rate than this gives up what it has not written."""
READ_AT_ONCE: Final = 1_000
P99_FACTOR_BAR: Final = 2.0
BALANCED_BAR_S: Final = 60.0
SILENCE_BAR_S: Final = 0.5
CONFIG: Final = {"min.insync.replicas": "2"}
SIDES: Final = ("leader", "follower")
"""Kafka's names of the two ends of a replication quota."""
FILL, BEGIN, STOP = "fill", "begin", "stop"


@dataclass(slots=True)
class Written:
    """The acknowledgements, in their order, and what was not acknowledged."""

    partitions: array[int]
    numbers: array[int]
    sent_s: array[float]
    acknowledged_s: array[float]
    """Both on the clock of time.monotonic, which processes share."""
    errors: list[str]
    produced: list[int]
    """The number of records of each partition."""


class _Writer:
    """The producer, in its process."""

    def __init__(self, bootstrap_servers: str, partitions: int, record_bytes: int) -> None:
        self._record_bytes = record_bytes
        self._written = Written(array("l"), array("q"), array("d"), array("d"), [], [0] * partitions)
        self._next_partition = itertools.cycle(range(partitions))
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "log_level": 0,
                "reconnect.backoff.max.ms": 1_000,
            }
        )

    def fill(self, records: int) -> None:
        for _ in range(records):
            while not self._write():
                self._producer.poll(0.1)
        self._producer.flush(TIMEOUT_S)

    def write_until(self, stopping: threading.Event, records_per_s: float) -> Written:
        began_s, sent = time.monotonic(), 0
        while not stopping.is_set():
            due = int((time.monotonic() - began_s) * records_per_s)
            if due - sent > BEHIND_S * records_per_s:
                began_s, sent, due = time.monotonic(), 0, 0
            while sent < due and self._write():
                sent += 1
            self._producer.poll(0.001)
        left = self._producer.flush(TIMEOUT_S)
        self._written.errors += ["no answer"] * left
        return self._written

    def _write(self) -> bool:
        partition, written, sent_s = next(self._next_partition), self._written, time.monotonic()
        number = written.produced[partition]

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                written.errors.append(str(error))
                return
            written.partitions.append(partition)
            written.numbers.append(number)
            written.sent_s.append(sent_s)
            written.acknowledged_s.append(time.monotonic())

        value = number.to_bytes(NUMBER_BYTES, "big").ljust(self._record_bytes, b"v")
        try:
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
        except BufferError:
            return False
        written.produced[partition] += 1
        self._producer.poll(0)
        return True


def write(
    bootstrap_servers: str, partitions: int, record_bytes: int, records: int, records_per_s: float, way: Any
) -> None:
    """Fill the topic, write at the rate from one word to the next, and send what was acknowledged."""
    writer = _Writer(bootstrap_servers, partitions, record_bytes)
    writer.fill(records)
    way.send(FILL)
    assert way.recv() == BEGIN
    stopping = threading.Event()
    threading.Thread(target=lambda: (way.recv(), stopping.set()), daemon=True).start()
    way.send(writer.write_until(stopping, records_per_s))


@contextmanager
def writing(
    bootstrap_servers: str, partitions: int, record_bytes: int, records: int, per_s: float
) -> Iterator[Connection]:
    """Yield the way to a producer that has filled the topic and waits for the word to go on."""
    context = multiprocessing.get_context("spawn")
    way, its_way = context.Pipe()
    process = context.Process(
        target=write, args=(bootstrap_servers, partitions, record_bytes, records, per_s, its_way), daemon=True
    )
    process.start()
    its_way.close()
    try:
        assert way.recv() == FILL
        yield way
    finally:
        process.kill()
        process.join()


class Change:
    """A change of the cluster's size, and when it was over."""

    def __init__(self, cluster: LocalCluster, brokers: int) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._placed: object = None
        self.name = f"{len(cluster.image.brokers)} to {brokers} brokers"
        self.began_s = self.over_s = time.monotonic()

    def carry_out(self) -> None:
        """Change the size, and wait until nothing moves any more.

        Raises:
            RuntimeError: the controller refuses it.
        """
        former = set(self._cluster.image.brokers)
        refusal = self._cluster.controller.resize(SizeChange(racks=self._brokers), TIMEOUT_S)
        if refusal is not None:
            raise RuntimeError(refusal)
        for broker_id in sorted({*range(self._brokers)} - former):
            self._cluster.launch(broker_id)
        for broker_id in sorted(former - {*range(self._brokers)}):
            self._end(broker_id)
        wait_for(self._is_settled, f"no moves after {self.name}", CHANGE_TIMEOUT_S)

    def _end(self, broker_id: BrokerId) -> None:
        controller = self._cluster.controller
        wait_for(lambda: broker_id in controller.drained, f"broker {broker_id} is empty", CHANGE_TIMEOUT_S)
        controller.shut_down_broker(broker_id, "the cluster becomes smaller")
        self._cluster.wait_for_exit(broker_id)

    def _is_settled(self) -> bool:
        image = self._cluster.image
        topic = image.topics.by_name[TOPIC]
        placed = {number: (each.replicas, each.leader) for number, each in topic.partitions.items()}
        now_s = time.monotonic()
        if (placed, image.brokers.keys()) != self._placed:
            self._placed, self.over_s = (placed, image.brokers.keys()), now_s
        holders = {broker_id for replicas, _ in placed.values() for broker_id in replicas}
        is_moving = any(each.is_reassigning for each in topic.partitions.values())
        return holders == image.brokers.keys() == {*range(self._brokers)} and not (
            is_moving or now_s - self.over_s < SETTLED_S
        )


def longest_silence(written: Written, since_s: float, until_s: float) -> tuple[float, int]:
    """Return the longest silence, in seconds, that ended in a time, and its partition."""
    last_s: dict[int, float] = {}
    longest = (0.0, -1)
    for partition, acknowledged_s in zip(written.partitions, written.acknowledged_s, strict=True):
        former_s = last_s.get(partition)
        last_s[partition] = acknowledged_s
        if former_s is not None and since_s <= acknowledged_s <= until_s:
            longest = max(longest, (acknowledged_s - former_s, partition))
    return longest


def p99_ms(written: Written, since_s: float, until_s: float) -> float:
    """Return the 99th percentile of the times from a record's send to its acknowledgement in a time."""
    times_ms = [
        1_000 * (acknowledged_s - sent_s)
        for sent_s, acknowledged_s in zip(written.sent_s, written.acknowledged_s, strict=True)
        if since_s <= acknowledged_s <= until_s
    ]
    return statistics.quantiles(times_ms, n=100)[98]


def lost_and_doubled(bootstrap_servers: str, written: Written) -> tuple[int, int]:
    """Read everything; return how many acknowledged records are missing, and how many are there again."""
    partitions = range(len(written.produced))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": TOPIC,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    found = [bytearray(count) for count in written.produced]
    try:
        left = {
            each: consumer.get_watermark_offsets(TopicPartition(TOPIC, each), timeout=TIMEOUT_S)[1]
            for each in partitions
        }
        consumer.assign([TopicPartition(TOPIC, each, 0) for each in partitions])
        doubled, deadline_s = 0, time.monotonic() + CHANGE_TIMEOUT_S
        while any(left.values()) and time.monotonic() < deadline_s:
            for message in consumer.consume(READ_AT_ONCE, 1.0):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                partition = message.partition()
                number = int.from_bytes(message.value()[:NUMBER_BYTES], "big")
                doubled += found[partition][number]
                found[partition][number] = 1
                left[partition] = max(0, left[partition] - 1)
    finally:
        consumer.close()
    acknowledged = zip(written.partitions, written.numbers, strict=True)
    return sum(not found[partition][number] for partition, number in acknowledged), doubled


def _measure(cluster: LocalCluster, figures: Figures, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    throttled = {f"{side}.replication.throttled.replicas": "*" for side in SIDES} if options.throttle else {}
    admin.create_topics([NewTopic(TOPIC, options.partitions, REPLICAS, config=throttled)])[TOPIC].result(
        TIMEOUT_S
    )
    records = int(options.gigabytes * 1e9 / options.record_bytes)
    per_s = options.megabytes_per_second * 1e6 / options.record_bytes
    with writing(cluster.bootstrap_servers, options.partitions, options.record_bytes, records, per_s) as way:
        way.send(BEGIN)
        before_s = time.monotonic()
        time.sleep(BEFORE_S)
        changes = []
        for brokers in (options.brokers, REPLICAS):
            changes.append(Change(cluster, brokers))
            changes[-1].carry_out()
        way.send(STOP)
        written: Written = way.recv()
    former_ms = p99_ms(written, before_s, changes[0].began_s)
    silence_s, _ = longest_silence(written, before_s + 1.0, changes[0].began_s)
    acknowledged = sum(each >= before_s for each in written.acknowledged_s)
    wrote_mb = acknowledged * options.record_bytes / 1e6
    figures.add("written", wrote_mb / (changes[-1].over_s + SETTLED_S - before_s), "MB/s")
    figures.add("p99 of acknowledgements before", former_ms, "ms")
    figures.add("longest silence of a partition before", silence_s, "s")
    for change in changes:
        until_s = change.over_s
        silence_s, partition = longest_silence(written, change.began_s, until_s)
        bar_ms = P99_FACTOR_BAR * former_ms
        figures.add(f"{change.name}: balanced after", until_s - change.began_s, "s", BALANCED_BAR_S)
        figures.add("  p99 of acknowledgements", p99_ms(written, change.began_s, until_s), "ms", bar_ms)
        figures.add(f"  longest silence, of partition {partition}", silence_s, "s", SILENCE_BAR_S)
    lost, doubled = lost_and_doubled(cluster.bootstrap_servers, written)
    figures.add(f"lost, of {len(written.numbers):,} records", lost, "", 0.0)
    figures.add("doubled", doubled, "", 0.0)
    figures.add("refused", len(written.errors), "", 0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if a figure misses its bar."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--brokers", type=int, default=6, help="the larger size")
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--megabytes-per-second", type=float, default=20.0)
    parser.add_argument("--record-bytes", type=int, default=64_000)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="written before, and moved")
    parser.add_argument(
        "--throttle",
        type=float,
        default=0.0,
        metavar="MEGABYTES_PER_SECOND",
        help="the quota of a broker's replication out of sync; 0: none",
    )
    options = parser.parse_args(arguments)
    rates = {f"{side}.replication.throttled.rate": f"{options.throttle * 1e6:.0f}" for side in SIDES}
    config = CONFIG | (rates if options.throttle else {})
    print(f"{'':60} {'':10} {'':4} {'bar':>8}")
    figures = Figures()
    with (
        freezing_survivors(),
        LocalCluster(brokers=REPLICAS, config=config, freezes_survivors=True) as cluster,
    ):
        _measure(cluster, figures, options)
        logs = [cluster.log_path(broker_id) for broker_id in range(options.brokers)]
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    print(f"longest stall of a broker's loop: {longest_stall_ms(lines)} ms")
    return int(not figures.are_within_bars)


if __name__ == "__main__":
    sys.exit(main())
