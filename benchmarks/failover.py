"""How long writing stands still when a broker suffers: the same producer on sparklog and on Apache Kafka.

    make bench-failover
    python -m benchmarks.failover --fault kill-executor --faults 10 --alone

A producer (librdkafka's, or with `--producer sparklog` the one that DataFrames are written with, on sparklog
only; `benchmarks/probe.py`) writes a record to each of six partitions every 5 ms, and
notes when each is acknowledged. The broker that leads most of them gets SIGKILL, or suffers another of
`benchmarks/faults.py`; Apache Kafka's is started again as soon as our own racks' supervisors start theirs.
When it is back in every ISR, it is the other cluster's turn; both are up all the time, each is first in turn,
and each has a producer only while it is its turn. A fault counts with the longest time without an
acknowledgement that any partition saw, of those that the broker led and of the others. Both clusters have
their default settings, and so does the producer, unless `--client` says otherwise.
"""

import argparse
import contextlib
import itertools
import math
import operator
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.clusters import BROKERS, ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.faults import FAULTS, Fault
from benchmarks.java_libraries import maven_at_hand
from benchmarks.probe import LIBRDKAFKA, PRODUCERS, Probe

TOPIC: Final = "failover"
PARTITIONS: Final = 6
NO_LEADER: Final = -1
WARM_UP_S: Final = 5.0
AFTERMATH_S: Final = 2.0
"""How long a fault is looked at when every partition is written to again: another gap may follow.

So long a broker has to stay back, too."""
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


class SeenPartition(NamedTuple):
    """What the metadata says of a partition."""

    leader: int
    isr: frozenset[int]


@dataclass(slots=True)
class Recovery:
    """How a cluster gets over a fault, from one look at it after the other.

    A broker that is gone is believed in for a while, and is in every ISR that long: it is back only when it
    is in all of them after it was out of one, or was seen to lead nothing any more.
    """

    victim: int
    written_again_s: float | None = None
    """When every partition had another leader, and had acknowledged a record since that was seen."""
    back_s: float | None = None
    """Since when every broker has been in every ISR again, without a look that says otherwise: whoever is
    asked may be behind."""
    _led_elsewhere_s: float | None = None
    _was_out: bool = False

    def look(
        self, partitions: Collection[SeenPartition], acknowledged_s: Iterable[float], now_s: float
    ) -> None:
        """Take in what is seen now; `acknowledged_s` has when each partition's last record was acknowledged.

        No partitions means that nobody has said anything.
        """
        if not partitions:
            return
        if {partition.leader for partition in partitions} & {self.victim, NO_LEADER}:
            self._led_elsewhere_s = None
        elif self._led_elsewhere_s is None:
            self._led_elsewhere_s = now_s
        elif self.written_again_s is None and min(acknowledged_s) > self._led_elsewhere_s:
            self.written_again_s = now_s
        # Whoever led and leads no more was out of that ISR, however short: no look may have come in time.
        if self._led_elsewhere_s is not None or any(self.victim not in each.isr for each in partitions):
            self._was_out = True
        if not self._was_out or not _are_whole(partitions):
            self.back_s = None
        elif self.back_s is None:
            self.back_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Whether the victim has been back for long enough to be believed."""
        return self.back_s is not None and now_s - self.back_s > AFTERMATH_S


class Side:
    """A cluster whose brokers suffer, one after the other, and what that has cost."""

    def __init__(
        self,
        cluster: ClusterUnderTest,
        fault: Fault,
        producer: str = LIBRDKAFKA,
        client: Mapping[str, object] | None = None,
    ) -> None:
        """Create the topic. `client` configures the producer."""
        self.pauses = Pauses()
        self._cluster = cluster
        self._fault = fault
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self._new_probe = partial(
            Probe, cluster.bootstrap_servers, TOPIC, PARTITIONS, producer=producer, configuration=client
        )
        cluster.create_topic(TOPIC, PARTITIONS, {"min.insync.replicas": str(BROKERS - 1)})

    def suffer(self) -> None:
        """Have the broker that leads most of the topic suffer, and wait until it is back."""
        _wait_for(lambda: _are_whole(self._partitions()), "every replica is in sync")
        with self._new_probe() as probe, ThreadPoolExecutor(1, "restart") as restarting:
            _wait_for(lambda: all(probe.acknowledged_s), "every partition is written to")
            time.sleep(WARM_UP_S)
            self._strike(probe, restarting)
        if probe.failed:
            raise RuntimeError(f"{len(probe.failed)} records were not acknowledged: {probe.failed[0]}")

    def _strike(self, probe: Probe, restarting: Executor) -> None:
        fault, pauses = self._fault, self.pauses
        leaders = [partition.leader for partition in self._partitions()]
        victim = statistics.mode(leaders)
        process = self._cluster.brokers()[victim]
        recovery = Recovery(victim)

        def looked_until(condition: Callable[[], bool]) -> bool:
            partitions = self._partitions()
            recovery.look(partitions, [times[-1] for times in probe.acknowledged_s], time.monotonic())
            return condition()

        struck_s = time.monotonic()
        fault.strike(process)
        # At once on either side: what is waited for here would count as the time that the broker is away.
        restarted = None if fault.is_lifted else restarting.submit(self._cluster.restart, victim)
        _wait_for(
            partial(looked_until, lambda: recovery.written_again_s is not None),
            "every partition is written to again",
        )
        aftermath_s = time.monotonic() + AFTERMATH_S
        _wait_for(partial(looked_until, lambda: time.monotonic() > aftermath_s), "the aftermath is over")
        gaps_ms = [1000 * gap_s for gap_s in probe.longest_gaps_s(struck_s)]
        led = [leader == victim for leader in leaders]
        pauses.led_ms.append(max(itertools.compress(gaps_ms, led)))
        pauses.others_ms.append(max(itertools.compress(gaps_ms, map(operator.not_, led)), default=0.0))
        if fault.is_lifted and process.is_running():
            fault.lift(process)
            struck_s = time.monotonic()
            recovery.back_s = None
        _wait_for(
            partial(looked_until, lambda: recovery.is_over(time.monotonic())),
            f"broker {victim} is back in every ISR",
        )
        if restarted is not None:
            restarted.result()
        assert recovery.back_s is not None, "that was waited for"
        pauses.back_ms.append(1000 * (recovery.back_s - struck_s))
        print(
            f"{self._cluster.name}: {fault.description} {victim}: {pauses.led_ms[-1]:,.0f} ms where it led, "
            f"{pauses.others_ms[-1]:,.0f} ms elsewhere, back in sync after {pauses.back_ms[-1]:,.0f} ms",
            file=sys.stderr,
            flush=True,
        )

    def _partitions(self) -> list[SeenPartition]:
        """Return the topic's partitions in order, or none if whoever was asked did not answer."""
        try:
            partitions = self._admin.list_topics(TOPIC, timeout=ASK_TIMEOUT_S).topics[TOPIC].partitions
        except KafkaException:  # asked of the broker that has just been killed
            return []
        return [SeenPartition(each.leader, frozenset(each.isrs)) for _, each in sorted(partitions.items())]


def _are_whole(partitions: Collection[SeenPartition]) -> bool:
    return len(partitions) == PARTITIONS and all(len(partition.isr) == BROKERS for partition in partitions)


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

    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(sparklog_cluster())]
        if compare:
            clusters.append(stack.enter_context(apache_kafka_cluster()))
        sides = [Side(cluster, fault, options.producer, client) for cluster in clusters]
        for number in range(options.faults):
            for side in sides[:: -1 if number % 2 else 1]:
                side.suffer()
    _print_table(fault, sides[0].pauses, sides[1].pauses if compare else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
