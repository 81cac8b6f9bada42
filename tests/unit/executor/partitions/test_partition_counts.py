"""How many partitions lack replicas: what an operator's first alarm is made of."""

from collections.abc import Mapping
from dataclasses import replace

from sparklog.node.metadata.schemas import PartitionChangeRecord
from sparklog.node.metrics import server
from sparklog.node.metrics.names import Metric
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, produce


def counts(brokers: Brokers, broker_id: int) -> Mapping[str | None, float]:
    """Return what a broker tells, by Kafka's names."""
    values = brokers.brokers[broker_id].replicas.metrics.snapshot(0)
    metrics: tuple[Metric, ...] = (
        server.LEADER_COUNT,
        server.PARTITION_COUNT,
        server.UNDER_REPLICATED,
        server.UNDER_MIN_ISR,
        server.AT_MIN_ISR,
        server.REASSIGNING,
        server.OFFLINE_REPLICA_COUNT,
    )
    return {metric.name: values[metric.of()] for metric in metrics if values[metric.of()]}


@with_brokers(count=3)
async def test_partitions_are_counted_as_their_isr_and_what_is_asked_of_it_change(brokers: Brokers) -> None:
    """Nothing is searched for when figures are read, so every change has to be heard of."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2), (1, 2, 0)], {"min.insync.replicas": "2"})
    assert counts(brokers, 0) == {"LeaderCount": 1, "PartitionCount": 2}
    await brokers.elect(topic_id, 0, 0, [0, 1])
    assert counts(brokers, 0) == {
        "LeaderCount": 1,
        "PartitionCount": 2,
        "UnderReplicatedPartitions": 1,
        "AtMinIsrPartitionCount": 1,
    }
    await until(lambda: counts(brokers, 0) == {"LeaderCount": 1, "PartitionCount": 2}, "broker 2 joins")
    await brokers.elect(topic_id, 0, 1, [0, 1, 2])
    assert counts(brokers, 0) == {"PartitionCount": 2}
    assert counts(brokers, 1) == {"LeaderCount": 2, "PartitionCount": 2}
    await brokers.delete_topic(topic_id)
    assert counts(brokers, 1) == {}


@with_brokers(count=2, config={"replica.lag.time.max.ms": "60000"})
async def test_partition_under_min_isr_is_counted_until_it_is_asked_for_less(brokers: Brokers) -> None:
    """acks=all is refused there: the metric that pages somebody."""
    topic_id = await brokers.create_topic("t", [(0, 1)], {"min.insync.replicas": "2"})
    brokers.refuse_proposals = ErrorCode.operation_not_attempted
    await brokers.elect(topic_id, 0, 0, [0])
    assert counts(brokers, 0)["UnderMinIsrPartitionCount"] == 1
    replica = brokers.replica(0, topic_id)
    replica.go_offline()
    assert counts(brokers, 0) == {"PartitionCount": 1, "OfflineReplicaCount": 1}


@with_brokers(count=2, config={"replica.lag.time.max.ms": "60000"})
async def test_partition_that_is_moved_is_counted_as_that_and_not_as_under_replicated(
    brokers: Brokers,
) -> None:
    """An operator who moves partitions must not be paged for it, and wants to see how many are left."""
    topic_id = await brokers.create_topic("t", [(0,)], {"min.insync.replicas": "2"})
    brokers.refuse_proposals = ErrorCode.operation_not_attempted
    whole = {"LeaderCount": 1, "PartitionCount": 1, "AtMinIsrPartitionCount": 1}
    assert counts(brokers, 0) == whole
    change = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, replicas=(1, 0), adding_replicas=(1,), removing_replicas=(0,)
    )
    await brokers.commit(change)
    assert counts(brokers, 0) == {**whole, "ReassigningPartitions": 1}
    await brokers.commit(
        replace(change, replicas=(0,), leader=0, isr=(0,), adding_replicas=(), removing_replicas=())
    )
    assert counts(brokers, 0) == whole


@with_brokers(count=2)
async def test_isr_changes_that_a_leader_asked_for_are_counted_and_refusals_apart(brokers: Brokers) -> None:
    """An ISR that flutters is seen by its rate, however short each change."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    brokers.refuse_proposals = ErrorCode.operation_not_attempted
    await brokers.elect(topic_id, 0, 0, [0])

    def value(metric: Metric) -> float:
        return brokers.brokers[0].replicas.metrics.snapshot(0)[metric.of()]

    await until(lambda: value(server.FAILED_ISR_UPDATES) >= 1, "a refusal")
    assert value(server.ISR_EXPANDS) == 0
    brokers.refuse_proposals = None
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(), acks=1))  # the follower has something to fetch again
    await until(lambda: value(server.ISR_EXPANDS) == 1, "broker 1 joins")
    assert value(server.ISR_SHRINKS) == 0
