"""The clients that put load on a cluster; the same ones on both sides."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.clusters import ClusterUnderTest
from benchmarks.java_libraries import run_kafka_program

CLIENT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Rate:
    """What a client reported, and what the brokers paid for it."""

    records_per_s: float
    p50_ms: float
    p99_ms: float
    brokers_cpu_s: float
    bytes_moved: int

    @property
    def brokers_cpu_s_per_gb(self) -> float:
        """CPU seconds of all brokers for a gigabyte (10^9 bytes of values)."""
        return self.brokers_cpu_s / (self.bytes_moved / 1e9)


def producer_performance(
    cluster: ClusterUnderTest,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    compression: str = "none",
    records_per_s: int = -1,
    batch_bytes: int | None = 65_536,
    linger_ms: int | None = None,
    idempotence: bool = True,
    security: Mapping[str, str] = MappingProxyType({}),
) -> Rate:
    """Run Kafka's own ProducerPerformance with acks=all, idempotent as it is unless told otherwise.

    `security` has the client's keys, and makes it speak to the listener of that protocol.
    """
    properties = [
        "acks=all",
        f"compression.type={compression}",
        f"enable.idempotence={str(idempotence).lower()}",
        *(f"{key}={value}" for key, value in security.items()),
    ]
    if batch_bytes is not None:
        properties.append(f"batch.size={batch_bytes}")
    if linger_ms is not None:
        properties.append(f"linger.ms={linger_ms}")
    cpu_before_s = cluster.brokers_cpu_s()
    output = run_kafka_program(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", str(records_per_s), "--bootstrap-server", _servers(cluster, security)),
        *("--command-property", *properties),
    ).stdout
    summary = output.strip().splitlines()[-1]
    rate = re.search(r"([\d.]+) records/sec.* ([\d.]+) ms 50th.* ([\d.]+) ms 99th", summary)
    if rate is None:
        raise RuntimeError(f"ProducerPerformance said: {output[-2000:]}")
    return Rate(
        records_per_s=float(rate[1]),
        p50_ms=float(rate[2]),
        p99_ms=float(rate[3]),
        brokers_cpu_s=cluster.brokers_cpu_s() - cpu_before_s,
        bytes_moved=records * record_bytes,
    )


def librdkafka_performance(
    cluster: ClusterUnderTest, topic: str, *, records: int, record_bytes: int, compression: str = "none"
) -> Rate:
    """Produce with librdkafka and acks=all, for machines where Kafka's own tools can't be fetched."""
    latencies_ms: list[float] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a record was refused: {error}")
        latencies_ms.append(1000 * (message.latency() or 0.0))

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "batch.size": 65_536,
            "compression.type": compression,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": acknowledged,
        }
    )
    cpu_before_s = cluster.brokers_cpu_s()
    started_s = time.monotonic()
    value = os.urandom(record_bytes)
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    while producer.flush(1.0):  # in small pieces: a bound's signal is heard between them
        if time.monotonic() - started_s > CLIENT_TIMEOUT_S:
            raise RuntimeError(f"{len(producer)} records not acknowledged in {CLIENT_TIMEOUT_S:.0f} s")
    seconds = time.monotonic() - started_s
    latencies_ms.sort()
    return Rate(
        records_per_s=records / seconds,
        p50_ms=latencies_ms[records // 2],
        p99_ms=latencies_ms[records * 99 // 100],
        brokers_cpu_s=cluster.brokers_cpu_s() - cpu_before_s,
        bytes_moved=records * record_bytes,
    )


def _servers(cluster: ClusterUnderTest, security: Mapping[str, str]) -> str:
    protocol = security.get("security.protocol")
    return cluster.bootstrap_servers if protocol is None else cluster.secured[protocol]


def end_to_end_latency(bootstrap_servers: str, topic: str, *, records: int) -> tuple[float, float]:
    """Run Kafka's own EndToEndLatency with acks=all; return p50 and p99 in milliseconds.

    Raises:
        RuntimeError: it did not get every record back as it sent it.
    """
    finished = run_kafka_program(
        "org.apache.kafka.tools.EndToEndLatency",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--num-records", str(records)),
        *("--producer-acks", "all", "--record-size", "100"),
        check=False,
    )
    percentiles = re.search(r"50th = ([\d.]+), 99th = ([\d.]+)", finished.stdout)
    if percentiles is None:
        raise RuntimeError(f"EndToEndLatency said: {(finished.stdout + finished.stderr)[-2000:]}")
    return float(percentiles[1]), float(percentiles[2])


def consume(
    cluster: ClusterUnderTest,
    topic: str,
    *,
    partitions: int,
    records: int,
    record_bytes: int,
    passes: int,
    security: Mapping[str, str] = MappingProxyType({}),
) -> Rate:
    """Read every record of `topic` with librdkafka, partitions assigned, `passes` times over.

    `security` as for `producer_performance`, with librdkafka's keys.
    """
    consumer = Consumer(
        {
            **security,
            "bootstrap.servers": _servers(cluster, security),
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 * 2**20,
            "fetch.max.bytes": 64 * 2**20,
            "queued.max.messages.kbytes": 256 * 2**10,
            "queued.min.messages": 1_000_000,
            "fetch.wait.max.ms": 100,
        }
    )
    cpu_before_s = cluster.brokers_cpu_s()
    started_s = time.monotonic()
    for _ in range(passes):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        received = 0
        while received < records:
            received += len(consumer.consume(10_000, timeout=1.0))
            if time.monotonic() - started_s > CLIENT_TIMEOUT_S:
                raise RuntimeError(f"consumed {received} of {records} records in {CLIENT_TIMEOUT_S:.0f} s")
    seconds = time.monotonic() - started_s
    cpu_s = cluster.brokers_cpu_s() - cpu_before_s
    consumer.close()
    return Rate(passes * records / seconds, 0.0, 0.0, cpu_s, passes * records * record_bytes)
