"""How long writing stands still when a broker suffers: the same producer on sparklog and on Apache Kafka.

    python -m benchmarks failover
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
import operator
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.budgets import Budget
from benchmarks.case import Figure, Round
from benchmarks.clusters import BROKERS, ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.faults import FAULTS, Fault
from benchmarks.java_libraries import maven_at_hand
from benchmarks.pages import HEADER, rows
from benchmarks.probe import LIBRDKAFKA, PRODUCERS, Probe
from benchmarks.results import CaseResult, Origin
from benchmarks.rounds import Sides, run_rounds

TOPIC: Final = "failover"
PARTITIONS: Final = 6
NO_LEADER: Final = -1
WARM_UP_S: Final = 5.0
AFTERMATH_S: Final = 2.0
"""How long a fault is looked at when every partition is written to again: another gap may follow.

So long a broker has to stay back, too."""
TIMEOUT_S: Final = 120.0
FAULT_S: Final = 60
"""Of both clusters, at most: with a whole session of Kafka's and a start of its broker."""
ASK_TIMEOUT_S: Final = 2.0
POLL_S: Final = 0.05


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
    """A cluster whose brokers suffer, one after the other."""

    def __init__(
        self,
        cluster: ClusterUnderTest,
        fault: Fault,
        producer: str = LIBRDKAFKA,
        client: Mapping[str, object] | None = None,
    ) -> None:
        """Take the cluster, which has the topic. `client` configures the producer."""
        self._cluster = cluster
        self._fault = fault
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self._new_probe = partial(
            Probe, cluster.bootstrap_servers, TOPIC, PARTITIONS, producer=producer, configuration=client
        )

    def suffer(self) -> list[Figure]:
        """Have the broker that leads most of the topic suffer, and wait until it is back."""
        _wait_for(lambda: _are_whole(self._partitions()), "every replica is in sync")
        with self._new_probe() as probe, ThreadPoolExecutor(1, "restart") as restarting:
            _wait_for(lambda: all(probe.acknowledged_s), "every partition is written to")
            time.sleep(WARM_UP_S)
            figures = self._strike(probe, restarting)
        if probe.failed:
            raise RuntimeError(f"{len(probe.failed)} records were not acknowledged: {probe.failed[0]}")
        return figures

    def _strike(self, probe: Probe, restarting: Executor) -> list[Figure]:
        fault = self._fault
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
        led_ms = max(itertools.compress(gaps_ms, led))
        others_ms = max(itertools.compress(gaps_ms, map(operator.not_, led)), default=0.0)
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
        back_ms = 1000 * (recovery.back_s - struck_s)
        return [
            Figure(f"{fault.description}: pause of the partitions that it led", "ms", led_ms),
            Figure(f"{fault.description}: pause of the other partitions", "ms", others_ms),
            Figure(f"{fault.description}: until it is back in every ISR", "ms", back_ms),
        ]

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


@contextlib.contextmanager
def suffering(
    cluster: ClusterUnderTest, fault: Fault, producer: str, client: Mapping[str, object] | None = None
) -> Iterator[Round]:
    """Create the topic; gives the round in which a broker of the cluster suffers once."""
    cluster.create_topic(TOPIC, PARTITIONS, {"min.insync.replicas": str(BROKERS - 1)})
    try:
        yield Side(cluster, fault, producer, client).suffer
    finally:
        cluster.delete_topic(TOPIC)


def killed(cluster: ClusterUnderTest) -> AbstractContextManager[Round]:
    """Kill the broker that leads most of a topic."""
    return suffering(cluster, FAULTS["kill"], LIBRDKAFKA)


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

        @contextlib.contextmanager
        def opened() -> Iterator[Sides]:
            with contextlib.ExitStack() as topics:
                yield {
                    cluster.name: topics.enter_context(suffering(cluster, fault, options.producer, client))
                    for cluster in clusters
                }

        rounds = run_rounds(opened, Budget(options.faults * FAULT_S, counted=options.faults, warms=False))
    print(HEADER + rows(CaseResult.of("failover", rounds, Origin.here(()))), end="")
    return 1 if rounds.failure else 0


if __name__ == "__main__":
    sys.exit(main())
