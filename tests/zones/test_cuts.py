"""Zones are cut off from each other under a producer: nothing acknowledged is lost, doubled or out of order.

Packets are lost without a word, which no killed process shows: connections stay open at both ends, requests
wait for their time-outs, and a cut in one direction lets one side hear the other.
"""

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final, Self, TypeAlias

import pytest

from benchmarks.probe import Probe
from tests.chaos.ledger import Ledger
from tests.chaos.reading import Reader, read_everything
from tests.cluster import wait_for
from tests.compat.librdkafka import create_topic
from tests.zones.network import Zones
from tests.zones.zoned_cluster import ZonedCluster

TOPIC: Final = "cut"
INSIDE: Final = "inside"
PARTITIONS: Final = 3
CONFIG: Final = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "10000",
    "leader.imbalance.check.interval.seconds": "5",
}
CLIENT: Final = {"socket.timeout.ms": 3_000, "socket.connection.setup.timeout.ms": 3_000}
"""librdkafka waits for 60 s for an answer; a cut would show its time-out and nothing of the cluster's."""
LONGEST_SILENCE_S: Final = 25.0
"""Session or lag, and a client's time-out, with room for a busy machine."""
UNDER_WAY_S: Final = 1.0
"""For acknowledgements that the cut did not meet."""
STEP_TIMEOUT_S: Final = 90.0

Directions: TypeAlias = Iterable[tuple[int, int]]


def cut_off(zones: Zones, leader: int) -> Directions:
    return [*zones.into(leader), *zones.out_of(leader)]


def sends_only(zones: Zones, leader: int) -> Directions:
    return zones.into(leader)


def receives_only(zones: Zones, leader: int) -> Directions:
    return zones.out_of(leader)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("cut", [cut_off, sends_only, receives_only], ids=lambda cut: cut.__name__)
def test_leader_whose_zone_is_cut_is_fenced_and_comes_back_without_loss(
    zones: Zones, cut: Callable[[Zones, int], Directions]
) -> None:
    """The others lead after its session, and it acknowledges nothing to clients in its zone meanwhile."""
    with ZonedCluster(zones, config=CONFIG) as cluster, contextlib.ExitStack() as closing:
        for topic, partitions in ((TOPIC, PARTITIONS), (INSIDE, 1)):
            create_topic(cluster.bootstrap_servers, topic, partitions)
        victim = cluster.leader(INSIDE)
        assert victim is not None

        def others_lead() -> bool:
            return cluster.image.brokers[victim].fenced and victim not in leaders(cluster)

        writing = closing.enter_context(Writing(cluster, TOPIC, PARTITIONS))
        with cluster.zone(victim).entered():
            inside = closing.enter_context(Writing(cluster, INSIDE, 1))
        cut_for = cut_under(cluster, cut(zones, cluster.zone_number(victim)), others_lead, writing, inside)
        writing.check(cut_for)
        inside.check(cut_for, most_silent_s=None)
        begun_s, healed_s = cut_for
        assert inside.acknowledged_between(begun_s + UNDER_WAY_S, healed_s) == 0


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("one_way", [False, True], ids=["both_ways", "one_way"])
def test_follower_that_cannot_reach_its_leader_leaves_the_isr_and_comes_back(
    zones: Zones, one_way: bool
) -> None:
    """Both brokers reach the controller, and keep their places: the ISR alone shrinks."""
    with ZonedCluster(zones, config=CONFIG) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
        leader = cluster.leader(TOPIC)
        assert leader is not None
        follower = next(broker for broker in cluster.broker_ids if broker != leader)
        ends = cluster.zone_number(follower), cluster.zone_number(leader)

        def follower_is_out() -> bool:
            return follower not in cluster.in_sync(TOPIC)

        with Writing(cluster, TOPIC, PARTITIONS) as writing:
            directions = [ends] if one_way else zones.between(*ends)
            writing.check(cut_under(cluster, directions, follower_is_out, writing))
        assert not any(cluster.image.brokers[broker].fenced for broker in cluster.broker_ids)


class Writing:
    """A producer and a reader of a topic in the zone of the calling thread, and what was promised to them."""

    def __init__(self, cluster: ZonedCluster, topic: str, partitions: int) -> None:
        self._servers = cluster.bootstrap_servers
        self._topic = topic
        self._partitions = partitions
        self._ledger = Ledger(partitions)
        self._reader = Reader(self._servers, topic, partitions, self._ledger, CLIENT)
        self._probe = Probe(self._servers, topic, partitions, configuration=CLIENT)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as closing:
            closing.enter_context(self._reader)
            closing.enter_context(self._probe)
            wait_for(lambda: self.is_acknowledged_after(0), f"all of {self._topic} is written to")
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()

    def is_acknowledged_after(self, moment_s: float) -> bool:
        """Whether every partition has had an acknowledgement after this moment."""
        return all(times and times[-1] > moment_s for times in self._probe.acknowledged_s)

    def acknowledged_between(self, first_s: float, last_s: float) -> int:
        """Return the number of records acknowledged in that time."""
        return sum(first_s < moment_s < last_s for times in self._probe.acknowledged_s for moment_s in times)

    def check(self, cut_for: tuple[float, float], most_silent_s: float | None = LONGEST_SILENCE_S) -> None:
        """Stop writing, read everything from the thread's zone, and compare it with the acknowledgements.

        Prints the longest silence since the cut; `most_silent_s` is its bound.
        """
        self._probe.stop()
        self._reader.stop()
        assert not self._reader.complaints
        read_everything(self._servers, self._topic, self._partitions, self._ledger)
        verdict = self._ledger.verdict(self._probe.numbers, self._probe.offsets, self._probe.produced)
        silence_s = max(self._probe.longest_gaps_s(cut_for[0]))
        print(f"{self._topic}: longest silence {silence_s:.1f} s, {verdict}")
        assert verdict.is_clean
        assert not self._probe.failed
        assert verdict.acknowledged == sum(self._probe.produced)
        assert most_silent_s is None or silence_s < most_silent_s


def cut_under(
    cluster: ZonedCluster, directions: Directions, is_noticed: Callable[[], bool], *writings: Writing
) -> tuple[float, float]:
    """Cut these directions until `is_noticed` and the first of `writings` goes on; return after all is whole.

    Returns when the cut began and when it ended, on the monotonic clock.
    """

    def all_in_sync() -> bool:
        topics = cluster.image.topics.by_id.values()
        return all(len(each.isr) == 3 for topic in topics for each in topic.partitions.values())

    wait_for(all_in_sync, "all replicas in sync", STEP_TIMEOUT_S)
    begun_s = time.monotonic()
    cluster.zones.cut(directions)
    wait_for(is_noticed, "the cluster notices the cut", STEP_TIMEOUT_S)
    noticed_s = time.monotonic()
    wait_for(lambda: writings[0].is_acknowledged_after(noticed_s), "writes amid the cut", STEP_TIMEOUT_S)
    healed_s = time.monotonic()
    cluster.zones.heal()
    wait_for(all_in_sync, "all replicas in sync again", STEP_TIMEOUT_S)
    whole_s = time.monotonic()
    wait_for(
        lambda: all(each.is_acknowledged_after(whole_s) for each in writings),
        "writes after the cut",
        STEP_TIMEOUT_S,
    )
    print(
        f"noticed after {noticed_s - begun_s:.1f} s, cut for {healed_s - begun_s:.1f} s, "
        f"all in sync {whole_s - healed_s:.1f} s after the cut"
    )
    return begun_s, healed_s


def leaders(cluster: ZonedCluster) -> set[int | None]:
    topics = cluster.image.topics.by_id.values()
    return {each.leader for topic in topics for each in topic.partitions.values()}
