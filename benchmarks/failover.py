"""How long writing stands still when a broker suffers: the same producer on sparklog and on Apache Kafka.

    make bench-failover
    python -m benchmarks.failover --fault kill-executor --faults 10 --alone

A producer (librdkafka's, or with `--producer sparklog` the one that DataFrames are written with, on sparklog
only; `benchmarks/probe.py`) writes a record to each of six partitions every 5 ms, and
notes when each is acknowledged. The broker that leads most of them gets SIGKILL, or suffers another of
`benchmarks/faults.py`; when it is back in every ISR, the next one does. A fault counts with the longest time
without an acknowledgement that any partition saw, of those that the broker led and of the others. Both
clusters have their default settings, and so does the producer, unless `--client` says otherwise.
"""

import argparse
import itertools
import math
import operator
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata

from benchmarks.clusters import BROKERS, ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.faults import FAULTS, Fault
from benchmarks.java_libraries import maven_at_hand
from benchmarks.probe import LIBRDKAFKA, PRODUCERS, Probe

TOPIC: Final = "failover"
PARTITIONS: Final = 6
WARM_UP_S: Final = 5.0
AFTERMATH_S: Final = 2.0
"""How long a fault is looked at when every partition is written to again: another gap may follow."""
TIMEOUT_S: Final = 120.0
ASK_TIMEOUT_S: Final = 2.0
POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Pauses:
    """What each fault cost, in milliseconds."""

    led_ms: list[float] = field(default_factory=list)
    """The longest pause of a partition that the broker led."""
    others_ms: list[float] = field(default_factory=list)
    """The longest pause of the other partitions."""
    back_ms: list[float] = field(default_factory=list)
    """From the fault, or its end, until the broker was in every ISR again."""


def failovers(
    cluster: ClusterUnderTest,
    fault: Fault,
    faults: int,
    producer: str = LIBRDKAFKA,
    client: Mapping[str, object] | None = None,
) -> Pauses:
    """Have brokers suffer one after the other; return what that cost. `client` configures the producer."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    cluster.create_topic(TOPIC, PARTITIONS, {"min.insync.replicas": str(BROKERS - 1)})
    pauses = Pauses()

    def partitions() -> Mapping[int, PartitionMetadata]:
        try:
            return admin.list_topics(TOPIC, timeout=ASK_TIMEOUT_S).topics[TOPIC].partitions
        except KafkaException:  # asked of the broker that has just been killed
            return {}

    def in_sync() -> bool:
        known = partitions()
        return len(known) == PARTITIONS and all(len(each.isrs) == BROKERS for each in known.values())

    _wait_for(in_sync, "every replica is in sync")
    with Probe(
        cluster.bootstrap_servers, TOPIC, PARTITIONS, producer=producer, configuration=client
    ) as probe:
        _wait_for(lambda: all(probe.acknowledged_s), "every partition is written to")
        time.sleep(WARM_UP_S)
        for _ in range(faults):
            leaders = [partition.leader for _, partition in sorted(partitions().items())]
            victim = statistics.mode(leaders)
            process = cluster.brokers()[victim]
            struck_s = time.monotonic()
            fault.strike(process)
            _wait_for(
                partial(_written_again, partitions, victim, probe), "every partition is written to again"
            )
            time.sleep(AFTERMATH_S)
            gaps_ms = [1000 * gap_s for gap_s in probe.longest_gaps_s(struck_s)]
            led = [leader == victim for leader in leaders]
            pauses.led_ms.append(max(itertools.compress(gaps_ms, led)))
            pauses.others_ms.append(max(itertools.compress(gaps_ms, map(operator.not_, led)), default=0.0))
            if fault.is_lifted and process.is_running():
                fault.lift(process)
                struck_s = time.monotonic()
            else:
                cluster.restart(victim)
            _wait_for(in_sync, f"broker {victim} is back in every ISR")
            pauses.back_ms.append(1000 * (time.monotonic() - struck_s))
            print(
                f"{cluster.name}: {fault.description} {victim}: {pauses.led_ms[-1]:,.0f} ms where it led, "
                f"{pauses.others_ms[-1]:,.0f} ms elsewhere, back in sync after {pauses.back_ms[-1]:,.0f} ms",
                file=sys.stderr,
                flush=True,
            )
    if probe.failed:
        raise RuntimeError(f"{len(probe.failed)} records were not acknowledged: {probe.failed[0]}")
    return pauses


def _written_again(
    partitions: Callable[[], Mapping[int, PartitionMetadata]], victim: int, probe: Probe
) -> bool:
    """Whether every partition has another leader and has acknowledged a record since that was seen."""
    leaders = {partition.leader for partition in partitions().values()}
    if not leaders or leaders & {victim, -1}:
        return False
    now_s = time.monotonic()
    time.sleep(POLL_S)
    return all(times[-1] > now_s for times in probe.acknowledged_s)


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not within {TIMEOUT_S:.0f} s: {what}")
        time.sleep(POLL_S)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of the values do not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def _print_table(fault: Fault, ours: Pauses, theirs: Pauses | None) -> None:
    print(f"longest time without an acknowledgement, {fault.description} {len(ours.led_ms)} times, ms")
    print(f"{'':44} {'sparklog':>10} {'Kafka':>10} {'ratio':>7}")
    for which, member in (
        ("partitions it led", "led_ms"),
        ("the other partitions", "others_ms"),
        ("until it is back in every ISR", "back_ms"),
    ):
        for name, percent in (("median", 50), ("p99", 99), ("maximum", 100)):
            value = percentile(getattr(ours, member), percent)
            against = ""
            if theirs is not None:
                baseline = percentile(getattr(theirs, member), percent)
                against = f" {baseline:10,.0f} {value / baseline:7.3f}"
            print(f"{which + ', ' + name:44} {value:10,.0f}{against}")


def main() -> int:
    """Have brokers of each cluster suffer and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="benchmarks.failover")
    parser.add_argument("--fault", choices=sorted(FAULTS), default="kill", help="what a broker suffers")
    parser.add_argument("--faults", type=int, default=10, help="how often, on each cluster")
    parser.add_argument("--alone", action="store_true", help="measure sparklog only")
    parser.add_argument("--producer", choices=PRODUCERS, default=LIBRDKAFKA, help="whose client writes")
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property of librdkafka's producer, beyond acks=all and idempotence",
    )
    options = parser.parse_args()
    fault = FAULTS[options.fault]
    client = dict(given.split("=", 1) for given in options.client)
    if options.producer != LIBRDKAFKA and client:
        parser.error("--client is for librdkafka's producer")
    alone = options.alone or fault.needs_executor or options.producer != LIBRDKAFKA
    compare = maven_at_hand() and not alone
    if not compare:
        print("no baseline: no Maven at hand, or asked for sparklog alone", file=sys.stderr)

    def measure(started: AbstractContextManager[ClusterUnderTest]) -> Pauses:
        with started as cluster:
            return failovers(cluster, fault, options.faults, options.producer, client)

    ours = measure(sparklog_cluster())
    _print_table(fault, ours, measure(apache_kafka_cluster()) if compare else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
