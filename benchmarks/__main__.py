"""Compare with Apache Kafka and with Spark's Kafka connector: `python -m benchmarks [--rounds N] [case ...]`.

Both clusters are up at once and each case runs on one and then on the other, `rounds` times, so that a
machine that drifts drifts for both; the table gives medians and their ratio.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import clients, dataframes
from benchmarks.clusters import ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.java_libraries import maven_at_hand

PARTITIONS = 3
BASELINE = "Apache Kafka"
CONSUME_PASSES = 5
SIZES = ((100, 2_000_000), (1_000, 300_000))
"""Bytes a record, and how many records."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity."""

    case: str
    unit: str
    value: float
    lower_is_better: bool = False
    bar: str = ""
    """What is asked of the ratio to the baseline."""


Case = Callable[[ClusterUnderTest], list[Figure]]


class Topics:
    """Fresh topics, deleted again so that no case pays for another's page cache."""

    def __init__(self) -> None:
        self._count = 0

    @contextlib.contextmanager
    def one(self, cluster: ClusterUnderTest) -> Iterator[str]:
        """Create a topic, and delete it at the end."""
        self._count += 1
        topic = f"benchmark-{self._count}"
        cluster.create_topic(topic, PARTITIONS)
        try:
            yield topic
        finally:
            cluster.delete_topic(topic)


TOPICS = Topics()


def produce(record_bytes: int, records: int, compression: str) -> Case:
    """Produce as fast as it goes."""

    def run(cluster: ClusterUnderTest) -> list[Figure]:
        with TOPICS.one(cluster) as topic:
            performance = clients.producer_performance if maven_at_hand() else clients.librdkafka_performance
            rate = performance(
                cluster, topic, records=records, record_bytes=record_bytes, compression=compression
            )
        name = f"produce {record_bytes} B" + ("" if compression == "none" else f" {compression}")
        bar = {100: ">= 1.2", 1_000: ">= 1.5"}[record_bytes] if compression == "none" else ""
        return [
            Figure(name, "records/s", rate.records_per_s, bar=bar),
            Figure(f"{name}, brokers' CPU", "s/GB", rate.brokers_cpu_s_per_gb, True, bar="<= 0.6"),
        ]

    return run


def consume(record_bytes: int, records: int) -> Case:
    """Consume what has just been produced."""

    def run(cluster: ClusterUnderTest) -> list[Figure]:
        with TOPICS.one(cluster) as topic:
            clients.librdkafka_performance(cluster, topic, records=records // 2, record_bytes=record_bytes)
            rate = clients.consume(
                cluster,
                topic,
                partitions=PARTITIONS,
                records=records // 2,
                record_bytes=record_bytes,
                passes=CONSUME_PASSES,
            )
        name = f"consume {record_bytes} B"
        return [
            Figure(name, "records/s", rate.records_per_s, bar=">= 1.0"),
            Figure(f"{name}, brokers' CPU", "s/GB", rate.brokers_cpu_s_per_gb, True, bar="<= 1.0"),
        ]

    return run


def latency(cluster: ClusterUnderTest) -> list[Figure]:
    """Acknowledgements at a steady rate, and one record's round trip."""
    if not maven_at_hand():
        return []
    with TOPICS.one(cluster) as topic:
        rate = clients.producer_performance(
            cluster, topic, records=50_000, record_bytes=100, records_per_s=5_000, batch_bytes=None
        )
        p50_ms, p99_ms = clients.end_to_end_latency(cluster.bootstrap_servers, topic, records=2_000)
    return [
        Figure("acknowledgement at 5,000 records/s, p50", "ms", rate.p50_ms, True),
        Figure("acknowledgement at 5,000 records/s, p99", "ms", rate.p99_ms, True, bar="<= 1.0"),
        Figure("one record's round trip, p50", "ms", p50_ms, True),
        Figure("one record's round trip, p99", "ms", p99_ms, True),
    ]


def dataframe(record_bytes: int, records: int, operation: str, rounds: int) -> Case:
    """Read or write DataFrames; the baseline is Spark's connector on Apache Kafka."""

    def run(cluster: ClusterUnderTest) -> list[Figure]:
        side = "connector" if cluster.name == BASELINE else "sparklog"
        with TOPICS.one(cluster) as topic:
            if operation == "read":
                clients.librdkafka_performance(
                    cluster, topic, records=records // 2, record_bytes=record_bytes
                )
            rows_per_s = dataframes.rows_per_s(
                side,
                operation,
                cluster.bootstrap_servers,
                topic,
                rows=records // 2,
                record_bytes=record_bytes,
                runs=rounds,
            )
        bar = {"read": ">= 2.0", "write": ">= 3.0"}[operation]
        return [Figure(f"DataFrame {operation} {record_bytes} B", "rows/s", rows_per_s, bar=bar)]

    return run


def memory(cluster: ClusterUnderTest) -> list[Figure]:
    """Resident memory after everything before."""
    figures = [Figure("three brokers, resident", "MiB", cluster.brokers_resident_mib(), True, bar="<= 0.5")]
    if cluster.hosts:
        figures.append(Figure("the executors' JVMs around them", "MiB", cluster.hosts_resident_mib(), True))
    return figures


def cases(rounds: int) -> dict[str, tuple[Case, int]]:
    """Return every case by name, with how many rounds it wants."""
    named: dict[str, tuple[Case, int]] = {}
    for record_bytes, records in SIZES:
        for compression in ("none", "zstd"):
            name = f"produce-{record_bytes}" + ("" if compression == "none" else f"-{compression}")
            named[name] = (produce(record_bytes, records, compression), rounds)
        named[f"consume-{record_bytes}"] = (consume(record_bytes, records), rounds)
    named["latency"] = (latency, rounds)
    for record_bytes, records in SIZES:
        for operation in ("read", "write"):
            # Each run of these is a Spark session that repeats the operation itself.
            case = dataframe(record_bytes, records, operation, rounds)
            named[f"dataframe-{operation}-{record_bytes}"] = (case, 1)
    named["memory"] = (memory, 1)
    return named


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="benchmarks")
    parser.add_argument(
        "cases", nargs="*", metavar="case", help=f"one of {', '.join(cases(1))}; default: all"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each case runs on each side")
    parser.add_argument("--alone", action="store_true", help="measure sparklog only")
    options = parser.parse_args()
    chosen = cases(options.rounds)
    unknown = set(options.cases) - set(chosen)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    compare = maven_at_hand() and not options.alone
    if not compare:
        print("Maven is not at hand (or --alone was given): no baseline", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(sparklog_cluster())]
        if compare:
            clusters.append(stack.enter_context(apache_kafka_cluster()))
        print(f"{'':48} {'sparklog':>12} {'baseline':>12} {'ratio':>7}  bar")
        for name, (case, rounds) in chosen.items():
            if options.cases and name not in options.cases:
                continue
            measured: dict[str, list[list[Figure]]] = {cluster.name: [] for cluster in clusters}
            for _ in range(rounds):
                for cluster in clusters:
                    measured[cluster.name].append(case(cluster))
            _print_rows(measured)
    return 0


def _print_rows(measured: dict[str, list[list[Figure]]]) -> None:
    baseline = {
        rows[0].case: statistics.median(row.value for row in rows)
        for rows in zip(*measured.get(BASELINE, []), strict=True)
    }
    for rows in zip(*measured["sparklog"], strict=True):
        figure = rows[0]
        ours = statistics.median(row.value for row in rows)
        theirs = baseline.get(figure.case)
        against = f"{theirs:12,.1f} {ours / theirs:7.2f}" if theirs else f"{'':20}"
        print(f"{figure.case + ', ' + figure.unit:48} {ours:12,.1f} {against}  {figure.bar}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
