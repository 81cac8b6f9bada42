"""The traffic of leaders as a broker reports it: of whole intervals, and of the busiest."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from sparklog.executor.monitoring.partition_traffic import REPORTED_PARTITIONS, PartitionTraffic
from sparklog.node.metrics import server
from sparklog.node.metrics.names import MetricName
from sparklog.node.metrics.registry import values_of_samples
from sparklog.protocol.types import TopicPartition


@dataclass(eq=False)
class FakeReplica:
    topic_partition: TopicPartition
    leadership: object | None = field(default_factory=object)
    leader_epoch: int | None = 3
    bytes_in: int = 0
    bytes_out: int = 0


class Broker:
    """Replicas whose traffic is looked at every ten seconds."""

    def __init__(self, count: int) -> None:
        self.now_ms = 0
        self.replicas = [FakeReplica(TopicPartition("t", number)) for number in range(count)]
        self.traffic = PartitionTraffic(cast(Any, self.replicas), lambda: self.now_ms)

    def look(self) -> dict[MetricName, float]:
        asyncio.run(self.traffic.look())
        self.now_ms += 10_000
        return values_of_samples(self.traffic.samples(self.now_ms))


def of(number: int) -> tuple[MetricName, MetricName]:
    tags = {"topic": "t", "partition": str(number)}
    return server.LEADER_BYTES_IN.of(**tags), server.LEADER_BYTES_OUT.of(**tags)


def test_samples_are_means_since_the_look_before() -> None:
    """Without an interval there is no mean, and 0 would pass for an idle broker."""
    broker = Broker(2)
    broker.replicas[0].bytes_in = 5
    assert broker.look() == {}
    broker.replicas[0].bytes_in += 300
    broker.replicas[0].bytes_out += 20
    whole = {server.LEADER_BYTES_IN.of(): 30.0, server.LEADER_BYTES_OUT.of(): 2.0}
    assert broker.look() == {**whole, **dict(zip(of(0), (30.0, 2.0), strict=True))}
    assert broker.look() == dict.fromkeys(whole, 0.0)


def test_samples_of_leaders_that_began_in_the_interval_are_left_out() -> None:
    """A partition's mean would be that of a part of the interval, or of two leaders."""
    broker = Broker(3)
    follower, elected, leader = broker.replicas
    follower.leadership = None
    broker.look()
    for replica in broker.replicas:
        replica.bytes_in += 100
    follower.leadership, elected.leader_epoch = object(), 4
    assert set(broker.look()) - {server.LEADER_BYTES_IN.of(), server.LEADER_BYTES_OUT.of()} == set(of(2))
    leader.leadership = None
    assert not set(of(2)) & set(values_of_samples(broker.traffic.samples(0)))


def test_sum_of_all_is_without_a_leadership_that_has_gone_since() -> None:
    """The controller counts it at its next leader at once: counted here too, it would drive further moves."""
    broker = Broker(2)
    broker.look()
    gone, staying = broker.replicas
    gone.bytes_in, staying.bytes_in = 300, 100
    assert broker.look()[server.LEADER_BYTES_IN.of()] == 40.0
    gone.leadership = None
    assert values_of_samples(broker.traffic.samples(0))[server.LEADER_BYTES_IN.of()] == 10.0


def test_samples_of_many_partitions_are_those_of_the_busiest_and_the_sum_of_all() -> None:
    """Metrics of all partitions would be most of what a broker pushes."""
    broker = Broker(REPORTED_PARTITIONS + 1)
    broker.look()
    for number, replica in enumerate(broker.replicas):
        replica.bytes_out = 10 * (number + 1)
    values = broker.look()
    assert len(values) == 2 * REPORTED_PARTITIONS + 2
    assert not set(of(0)) & set(values)
    assert values[server.LEADER_BYTES_OUT.of()] == sum(range(REPORTED_PARTITIONS + 2))
