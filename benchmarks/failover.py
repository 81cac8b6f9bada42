"""How long writing stands still when a broker is killed: the same producer on sparklog and on Apache Kafka.

    make bench-failover

A producer of librdkafka's (`benchmarks/probe.py`) writes a record to each of six partitions every 5 ms, and
notes when each is acknowledged. The broker that leads most of them gets SIGKILL; when it is back in every
ISR, the next one does. A kill counts with the longest time without an acknowledgement that any partition
saw, of those that the dead broker led and of the others. Both clusters have their default settings.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata

from benchmarks.clusters import BROKERS, ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.java_libraries import maven_at_hand
from benchmarks.probe import Probe

TOPIC: Final = "failover"
PARTITIONS: Final = 6
WARM_UP_S: Final = 5.0
AFTERMATH_S: Final = 2.0
"""How long a kill is looked at when every partition is written to again: another gap may follow."""
TIMEOUT_S: Final = 120.0
ASK_TIMEOUT_S: Final = 2.0
POLL_S: Final = 0.05


def failovers(cluster: ClusterUnderTest, kills: int) -> tuple[list[float], list[float]]:
    """Kill brokers one after the other; return what each kill cost, in milliseconds.

    The first list is of the partitions that the dead broker led, the second one of the others.
    """
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    cluster.create_topic(TOPIC, PARTITIONS, {"min.insync.replicas": str(BROKERS - 1)})
    led_ms: list[float] = []
    others_ms: list[float] = []

    def partitions() -> Mapping[int, PartitionMetadata]:
        try:
            return admin.list_topics(TOPIC, timeout=ASK_TIMEOUT_S).topics[TOPIC].partitions
        except KafkaException:  # asked of the broker that has just been killed
            return {}

    def in_sync() -> bool:
        known = partitions()
        return len(known) == PARTITIONS and all(len(each.isrs) == BROKERS for each in known.values())

    _wait_for(in_sync, "every replica is in sync")
    with Probe(cluster.bootstrap_servers, TOPIC, PARTITIONS) as probe:
        _wait_for(lambda: all(probe.acknowledged_s), "every partition is written to")
        time.sleep(WARM_UP_S)
        for _ in range(kills):
            leaders = [partition.leader for _, partition in sorted(partitions().items())]
            victim = statistics.mode(leaders)
            process = cluster.brokers()[victim]
            killed_s = time.monotonic()
            process.kill()
            _wait_for(
                partial(_written_again, partitions, victim, probe), "every partition is written to again"
            )
            time.sleep(AFTERMATH_S)
            led_ms.append(0.0)
            others_ms.append(0.0)
            for gap_s, leader in zip(probe.longest_gaps_s(killed_s), leaders, strict=True):
                gaps_ms = led_ms if leader == victim else others_ms
                gaps_ms[-1] = max(gaps_ms[-1], 1000 * gap_s)
            print(
                f"{cluster.name}: broker {victim} killed, {led_ms[-1]:,.0f} ms", file=sys.stderr, flush=True
            )
            cluster.restart(victim)
            _wait_for(in_sync, f"broker {victim} is back in every ISR")
    if probe.failed:
        raise RuntimeError(f"{len(probe.failed)} records were not acknowledged: {probe.failed[0]}")
    return led_ms, others_ms


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


def main() -> int:
    """Kill brokers of each cluster and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="benchmarks.failover")
    parser.add_argument("--kills", type=int, default=10, help="how many brokers of each cluster are killed")
    parser.add_argument("--alone", action="store_true", help="measure sparklog only")
    options = parser.parse_args()
    compare = maven_at_hand() and not options.alone
    if not compare:
        print("Maven is not at hand (or --alone was given): no baseline", file=sys.stderr)
    with sparklog_cluster() as cluster:
        ours = failovers(cluster, options.kills)
    theirs: tuple[list[float], list[float]] | None = None
    if compare:
        with apache_kafka_cluster() as cluster:
            theirs = failovers(cluster, options.kills)
    print(f"longest time without an acknowledgement, {options.kills} kills of a broker, ms")
    print(f"{'':44} {'sparklog':>10} {'Kafka':>10} {'ratio':>7}")
    for index, which in enumerate(("partitions it led", "the other partitions")):
        for name, percent in (("median", 50), ("p99", 99), ("maximum", 100)):
            value = percentile(ours[index], percent)
            against = ""
            if theirs is not None:
                baseline = percentile(theirs[index], percent)
                against = f" {baseline:10,.0f} {value / baseline:7.3f}"
            print(f"{which + ', ' + name:44} {value:10,.0f}{against}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
