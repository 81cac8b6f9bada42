"""Compare with Apache Kafka and with Spark's Kafka connector: `python -m benchmarks [--rounds N] [case ...]`.

Both clusters are up at once and each case runs on one and then on the other, each first in turn, so that a
machine that drifts drifts for both. Rounds go on until all figures of both stand still (`warm_up`); only then
`--rounds` of them are counted. The table is Markdown, as in the README: medians, the lowest and highest round
beside them, the median of what the ratio was in each round, and how many rounds it took until the figure
stood still, on either side. What compares other figures of its round, as ratio or difference, is not waited
for.
"""

import argparse
import contextlib
import dataclasses
import math
import signal
import statistics
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from benchmarks import clients, coordinators, dataframe_writes, dataframes, groups, security, transactions
from benchmarks.case import BASELINE, OURS, PARTITIONS, RATIO, TOPICS, Case, Figure, Round
from benchmarks.clusters import ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.java_libraries import maven_at_hand
from benchmarks.warm_up import MAX_WARM_UP_ROUNDS, warm_up

CONSUME_PASSES = 5
SIZES = ((100, 2_000_000), (1_000, 300_000))
"""Bytes a record, and how many records."""


def produce(record_bytes: int, records: int, compression: str) -> Case:
    """Produce as fast as it goes."""
    name = f"produce {record_bytes} B" + ("" if compression == "none" else f" {compression}")
    bar = {100: ">= 1.2", 1_000: ">= 1.5"}[record_bytes] if compression == "none" else ""

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
                Figure(f"{name}, brokers' CPU", "s/GB", rate.brokers_cpu_s_per_gb, "<= 0.6"),
            ]

        yield run

    return prepared


def consume(record_bytes: int, records: int) -> Case:
    """Consume what was produced before, again and again."""
    name = f"consume {record_bytes} B"

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
                    passes=CONSUME_PASSES,
                )
                return [
                    Figure(name, "records/s", rate.records_per_s, ">= 1.0"),
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
                cluster, topic, records=50_000, record_bytes=100, records_per_s=5_000, batch_bytes=None
            )
            p50_ms, p99_ms = clients.end_to_end_latency(cluster.bootstrap_servers, topic, records=2_000)
        return [
            Figure(name, "ms", value_ms, bar, resolution=1.0)  # Kafka's programs print whole ones
            for name, value_ms, bar in (
                ("acknowledgement at 5,000 records/s, p50", rate.p50_ms, ""),
                ("acknowledgement at 5,000 records/s, p99", rate.p99_ms, "<= 1.0"),
                ("one record's round trip, p50", p50_ms, ""),
                ("one record's round trip, p99", p99_ms, ""),
            )
        ]

    yield run


def dataframe(record_bytes: int, records: int, operation: str) -> Case:
    """Read, write or stream DataFrames; the baseline is Spark's connector on Apache Kafka."""
    name = f"DataFrame {operation} {record_bytes} B"
    bar = {"read": ">= 2.0", "write": ">= 3.0", "stream": ">= 2.0", "sink-stream": ">= 3.0"}[operation]

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with TOPICS.one(cluster) as topic:
            if operation in dataframes.READS:
                batches = dataframe_writes.STREAM_BATCHES if operation == "stream" else 1
                clients.librdkafka_performance(
                    cluster, topic, records=batches * records, record_bytes=record_bytes
                )
            with dataframes.session(
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
    """Have a streaming query run; the baseline is Spark's connector on Apache Kafka."""

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with (
            TOPICS.one(cluster) as topic,
            dataframes.session(
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
            dataframes.session(
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


def memory(cluster: ClusterUnderTest) -> list[Figure]:
    """Return the resident memory after everything before."""
    figures = [Figure("three brokers, resident", "MiB", cluster.brokers_resident_mib(), "<= 0.5")]
    if cluster.hosts:
        figures.append(Figure("the executors' JVMs around them", "MiB", cluster.hosts_resident_mib()))
    figures.append(Figure("everything that must run, resident", "MiB", cluster.everything_resident_mib()))
    return figures


def cases() -> dict[str, Case]:
    """Return every case by name."""
    named: dict[str, Case] = {}
    for record_bytes, records in SIZES:
        for compression in ("none", "zstd"):
            name = f"produce-{record_bytes}" + ("" if compression == "none" else f"-{compression}")
            named[name] = produce(record_bytes, records, compression)
        named[f"consume-{record_bytes}"] = consume(record_bytes, records // 2)
    if maven_at_hand():  # its clients are Kafka's own programs
        named["latency"] = latency
    for record_bytes, records in SIZES:
        for operation in ("read", "write", "stream"):
            named[f"dataframe-{operation}-{record_bytes}"] = dataframe(record_bytes, records // 2, operation)
    named["query-small-batch"] = query("small-batch", "micro-batch of 1,000 rows", "ms", "<= 1.0")
    named["query-noticed"] = query("noticed", "record to batch, beyond what Spark takes", "ms", "")
    named["query-idle"] = query("idle", "idle query's CPU", "ms/s", "<= 0.5")
    for record_bytes, records in SIZES:
        named[f"sink-stream-{record_bytes}"] = dataframe(record_bytes, records // 2, "sink-stream")
    name = "micro-batch of 1,000 rows through the sink"
    named["sink-small-batch"] = guarantees(
        "sink-small-batch",
        0,
        0,
        "ms",
        [f"{name}, exactly once", f"{name}, at least once"],
        Figure(f"{name}, added by exactly once", "ms", math.nan, "ours <= 60", is_difference=True),
    )
    record_bytes, records = SIZES[0]
    named["sink-batch-atomic"] = guarantees(
        "sink-batch-atomic",
        records // 2,
        record_bytes,
        "rows/s",
        [f"DataFrame write {record_bytes} B, atomic", f"DataFrame write {record_bytes} B, not atomic"],
        Figure(f"DataFrame write {record_bytes} B, atomic to not atomic", RATIO, math.nan, "ours >= 0.95"),
    )
    named["read-isolation"] = guarantees(
        "read-isolation",
        records // 2,
        record_bytes,
        "rows/s",
        [f"DataFrame read {record_bytes} B, {level}" for level in dataframe_writes.ISOLATIONS],
        Figure(f"DataFrame read {record_bytes} B, read_committed to read_uncommitted", RATIO, math.nan),
    )
    named |= groups.CASES
    named |= transactions.CASES
    named |= coordinators.CASES
    return named


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="benchmarks")
    plain = cases()
    names = (*plain, *security.CASES)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"one of {', '.join(names)}; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="how many warm rounds of each case are counted")
    parser.add_argument("--alone", action="store_true", help="measure sparklog only")
    options = parser.parse_args()
    unknown = set(options.cases) - set(names)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    # However this is ended, both clusters are to be gone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    compare = maven_at_hand() and not options.alone
    if not compare:
        print("Maven is not at hand (or --alone was given): no baseline", file=sys.stderr)
    chosen = options.cases or names
    print(
        "| case | sparklog | lowest to highest | Apache Kafka, connector | lowest to highest | ratio |",
        end="",
    )
    print(" bar | rounds until still |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    if not plain.keys().isdisjoint(chosen):
        with contextlib.ExitStack() as stack:
            clusters = [stack.enter_context(sparklog_cluster())]
            if compare:
                clusters.append(stack.enter_context(apache_kafka_cluster()))
            _measure_all(plain, chosen, clusters, options.rounds)
            _print_rows({cluster.name: [memory(cluster)] for cluster in clusters}, {})
    if not security.CASES.keys().isdisjoint(chosen):
        with security.secured_clusters(compare=compare) as (secured, clusters):
            of_security = {name: case(secured) for name, case in security.CASES.items()}
            _measure_all(of_security, chosen, clusters, options.rounds)
    return 0


def _measure_all(
    named: Mapping[str, Case], chosen: Collection[str], clusters: Sequence[ClusterUnderTest], rounds: int
) -> None:
    for name, case in named.items():
        if name in chosen:
            print(f"{name} ...", file=sys.stderr, flush=True)
            most = coordinators.WARM_UP_ROUNDS if name in coordinators.CASES else MAX_WARM_UP_ROUNDS
            _measure(case, clusters, rounds, most)


def _measure(case: Case, clusters: Sequence[ClusterUnderTest], rounds: int, most_warm_up_rounds: int) -> None:
    """Warm every side until it stands still, count `rounds` of each in turn, and print the rows."""
    with contextlib.ExitStack() as stack:
        sides = {cluster.name: stack.enter_context(case(cluster)) for cluster in clusters}
        took = warm_up(sides, most_warm_up_rounds)
        measured: dict[str, list[list[Figure]]] = {name: [] for name in sides}
        for number in range(rounds):
            for name in list(sides)[:: -1 if number % 2 else 1]:
                measured[name].append(sides[name]())
    _print_rows(measured, took, most_warm_up_rounds)


def _print_rows(
    measured: Mapping[str, list[list[Figure]]],
    took: Mapping[str, Mapping[str, int | None]],
    most_warm_up_rounds: int = 0,
) -> None:
    """Print a row for each figure: `measured` has each side's rounds, `took` its figures' of warming up."""
    baseline = {
        rows[0].case: [row.value for row in rows] for rows in zip(*measured.get(BASELINE, []), strict=True)
    }
    for rows in zip(*measured[OURS], strict=True):
        figure = rows[0]
        ours = [row.value for row in rows]
        theirs = baseline.get(figure.case)
        cells = [f"{figure.case}, {figure.unit}", *_median_and_spread(ours)]
        if theirs is None:
            cells += ["", "", ""]
        else:
            ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
            cells += [*_median_and_spread(theirs), f"{ratio:.2f}"]
        counts = [of_side[figure.case] for of_side in took.values() if figure.case in of_side]
        still = " / ".join(f"> {most_warm_up_rounds}" if count is None else str(count) for count in counts)
        print(f"| {' | '.join([*cells, figure.bar, still])} |", flush=True)


def _median_and_spread(values: Sequence[float]) -> tuple[str, str]:
    median = statistics.median(values)
    digits = 0 if median >= 100 else 1 if median >= 10 else 2  # a bar of 0.95 is not to be told from 1.0
    low, high = (f"{value:,.{digits}f}" for value in (min(values), max(values)))
    return f"{median:,.{digits}f}", "" if len(values) == 1 else f"{low} to {high}"


if __name__ == "__main__":
    sys.exit(main())
