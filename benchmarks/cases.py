"""The cases that run on the two clusters, by name.

Rates are taken in rounds of a gigabyte: shorter ones flatter, since Kafka's JIT needs as much until it stands
still.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks import clients, coordinators, dataframe_writes, dataframes, failover, groups, transactions
from benchmarks.case import BASELINE, OURS, PARTITIONS, RATIO, TOPICS, Case, Figure, Round
from benchmarks.clusters import ClusterUnderTest, cpu_s
from benchmarks.java_libraries import maven_at_hand

ROUND_BYTES: Final = 1_000_000_000
"""The values that a round produces or consumes."""
CONSUMED_AGAIN: Final = {100: 10, 1_000: 5}
"""How often a round reads the records, by their bytes: fewer of them are produced first."""
ROWS: Final = {100: 1_000_000, 1_000: 150_000}
"""The rows of a DataFrame, by their bytes."""
IDLE_S: Final = 10.0


def produce(record_bytes: int, compression: str) -> Case:
    """Produce as fast as it goes."""
    name = f"produce {record_bytes} B" + ("" if compression == "none" else f" {compression}")
    bar, cpu_bar = "", "<= 0.6"
    if compression == "none":
        bar, cpu_bar = {100: (">= 1.8", "<= 0.33"), 1_000: (">= 1.6", "<= 0.4")}[record_bytes]
    records = ROUND_BYTES // record_bytes

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        def run() -> list[Figure]:
            with TOPICS.one(cluster) as topic:
                performance = (
                    clients.producer_performance if maven_at_hand() else clients.librdkafka_performance
                )
                rate = performance(
                    cluster, topic, records=records, record_bytes=record_bytes, compression=compression
                )
            return [
                Figure(name, "records/s", rate.records_per_s, bar),
                Figure(f"{name}, brokers' CPU", "s/GB", rate.brokers_cpu_s_per_gb, cpu_bar),
            ]

        yield run

    return prepared


def consume(record_bytes: int) -> Case:
    """Consume what was produced before, again and again."""
    name = f"consume {record_bytes} B"
    passes = CONSUMED_AGAIN[record_bytes]
    records = ROUND_BYTES // record_bytes // passes

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with TOPICS.one(cluster) as topic:
            clients.librdkafka_performance(cluster, topic, records=records, record_bytes=record_bytes)

            def run() -> list[Figure]:
                rate = clients.consume(
                    cluster,
                    topic,
                    partitions=PARTITIONS,
                    records=records,
                    record_bytes=record_bytes,
                    passes=passes,
                )
                return [
                    Figure(name, "records/s", rate.records_per_s, ">= 1.1"),
                    Figure(f"{name}, brokers' CPU", "s/GB", rate.brokers_cpu_s_per_gb, "<= 1.0"),
                ]

            yield run

    return prepared


@contextlib.contextmanager
def latency(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Acknowledgements at a steady rate, and one record's round trip."""

    def run() -> list[Figure]:
        with TOPICS.one(cluster) as topic:
            rate = clients.producer_performance(
                cluster,
                topic,
                records=50_000,
                record_bytes=100,
                records_per_s=5_000,
                batch_bytes=None,
                linger_ms=0,
            )
            p50_ms, p99_ms = clients.end_to_end_latency(cluster.bootstrap_servers, topic, records=2_000)
        return [
            Figure(name, "ms", value_ms, bar, resolution=1.0)  # Kafka's programs print whole ones
            for name, value_ms, bar in (
                ("acknowledgement at 5,000 records/s, no linger, p50", rate.p50_ms, "<= 1.0"),
                ("acknowledgement at 5,000 records/s, no linger, p99", rate.p99_ms, "<= 0.3"),
                ("one record's round trip, p50", p50_ms, "<= 1.0"),
                ("one record's round trip, p99", p99_ms, ""),
            )
        ]

    yield run


def dataframe(record_bytes: int, operation: str) -> Case:
    """Read, write or stream DataFrames; the baseline is Spark's connector on Apache Kafka."""
    name = f"DataFrame {operation} {record_bytes} B"
    records = ROWS[record_bytes]
    bar = {"read": ">= 2.0", "write": ">= 3.0", "stream": ">= 2.0", "sink-stream": ">= 3.0"}[operation]

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with TOPICS.one(cluster) as topic:
            if operation in dataframes.READS:
                batches = dataframe_writes.STREAM_BATCHES if operation == "stream" else 1
                clients.librdkafka_performance(
                    cluster, topic, records=batches * records, record_bytes=record_bytes
                )
            with dataframes.SESSIONS.operation(
                _side(cluster),
                operation,
                cluster.bootstrap_servers,
                topic,
                rows=records,
                record_bytes=record_bytes,
            ) as figures:

                def run() -> list[Figure]:
                    if operation != "sink-stream":
                        return [Figure(name, "rows/s", *figures(topic), bar)]
                    with TOPICS.one(cluster) as written:  # all rounds together would fill the page cache
                        return [Figure(name, "rows/s", *figures(written), bar)]

                yield run

    return prepared


def query(operation: str, name: str, unit: str, bar: str) -> Case:
    """Run a streaming query; the baseline is Spark's connector on Apache Kafka."""

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with (
            TOPICS.one(cluster) as topic,
            dataframes.SESSIONS.operation(
                _side(cluster), operation, cluster.bootstrap_servers, topic, rows=0, record_bytes=0
            ) as figures,
        ):
            yield lambda: [Figure(name, unit, *figures(topic), bar)]

    return prepared


def guarantees(
    operation: str, rows: int, record_bytes: int, unit: str, names: Sequence[str], compared: Figure
) -> Case:
    """Write, or read, under each guarantee in turn: this project's format does, on either cluster.

    Its figures are one a guarantee, and what `compared` is like, which compares them.
    """

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with (
            TOPICS.one(cluster) as topic,
            dataframes.SESSIONS.operation(
                OURS, operation, cluster.bootstrap_servers, topic, rows=rows, record_bytes=record_bytes
            ) as figures,
        ):

            def run() -> list[Figure]:
                *values, comparison = figures(topic)
                of_each = [Figure(name, unit, value) for name, value in zip(names, values, strict=True)]
                return [*of_each, dataclasses.replace(compared, value=comparison)]

            yield run

    return prepared


def _side(cluster: ClusterUnderTest) -> str:
    return "connector" if cluster.name == BASELINE else OURS


@contextlib.contextmanager
def idle(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Leave the cluster alone: the brokers' CPU, and the memory that everything before has left."""

    def run() -> list[Figure]:
        brokers = cluster.brokers().values()  # asked once: brokers answer that
        began_s, cpu_before_s = time.monotonic(), sum(map(cpu_s, brokers))
        time.sleep(IDLE_S)
        cpu_ms_per_s = 1000 * (sum(map(cpu_s, brokers)) - cpu_before_s) / (time.monotonic() - began_s)
        figures = [
            Figure("three brokers idle, CPU", "ms/s", cpu_ms_per_s, "ours <= 10"),
            Figure("three brokers, resident", "MiB", cluster.brokers_resident_mib(), "ours <= 250"),
        ]
        if cluster.hosts:
            figures.append(
                Figure("the executors' JVMs around them, resident", "MiB", cluster.hosts_resident_mib())
            )
        everything_mib = cluster.everything_resident_mib()
        return [*figures, Figure("everything that must run, resident", "MiB", everything_mib)]

    yield run


def cases() -> dict[str, Case]:
    """Return every case by name."""
    named: dict[str, Case] = {"idle": idle, "failover": failover.killed}
    for record_bytes in ROWS:
        for compression in ("none", "zstd"):
            name = f"produce-{record_bytes}" + ("" if compression == "none" else f"-{compression}")
            named[name] = produce(record_bytes, compression)
        named[f"consume-{record_bytes}"] = consume(record_bytes)
        for operation in ("read", "write", "stream"):
            named[f"dataframe-{operation}-{record_bytes}"] = dataframe(record_bytes, operation)
        named[f"sink-stream-{record_bytes}"] = dataframe(record_bytes, "sink-stream")
    if maven_at_hand():  # their clients are Kafka's own programs
        named |= {"latency": latency, "idempotent": transactions.idempotent}
    named["query-small-batch"] = query("small-batch", "micro-batch of 1,000 rows", "ms", "<= 1.0")
    named["query-noticed"] = query("noticed", "record to batch, beyond what Spark takes", "ms", "")
    named["query-idle"] = query("idle", "idle query's CPU", "ms/s", "<= 0.5")
    name = "micro-batch of 1,000 rows through the sink"
    named["sink-small-batch"] = guarantees(
        "sink-small-batch",
        0,
        0,
        "ms",
        [f"{name}, exactly once", f"{name}, at least once"],
        Figure(f"{name}, added by exactly once", "ms", math.nan, "ours <= 40", is_difference=True),
    )
    record_bytes = 100
    named["sink-batch-atomic"] = guarantees(
        "sink-batch-atomic",
        ROWS[record_bytes],
        record_bytes,
        "rows/s",
        [f"DataFrame write {record_bytes} B, atomic", f"DataFrame write {record_bytes} B, not atomic"],
        Figure(f"DataFrame write {record_bytes} B, atomic to not atomic", RATIO, math.nan, "ours >= 0.95"),
    )
    named["read-isolation"] = guarantees(
        "read-isolation",
        ROWS[record_bytes],
        record_bytes,
        "rows/s",
        [f"DataFrame read {record_bytes} B, {level}" for level in dataframe_writes.ISOLATIONS],
        Figure(f"DataFrame read {record_bytes} B, read_committed to read_uncommitted", RATIO, math.nan),
    )
    named |= groups.CASES
    named |= transactions.CASES
    named |= coordinators.CASES
    return named
