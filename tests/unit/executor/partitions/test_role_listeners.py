"""What listeners to roles are told, in which order, and what a replica is by then."""

import asyncio

import pytest

from sparklog.executor.partitions.machine.damage import Damage
from sparklog.executor.partitions.replica import Replica, Suspension
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.metadata.schemas import PartitionChangeRecord
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, delete_records, produce, rows


class Told(RoleListener[Replica]):
    """Notes what it is told, and what the replica is then."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def became_leader(self, replica: Replica) -> None:
        assert replica.leadership is not None
        self.events.append(f"{replica} leads in {replica.leader_epoch}")

    def led_on(self, replica: Replica) -> None:
        assert replica.leadership is not None
        self.events.append(f"{replica} leads on in {replica.leader_epoch}")

    def became_follower(self, replica: Replica) -> None:
        assert (replica.leadership, replica.follower_state is None) == (None, False)
        self.events.append(f"{replica} follows {replica.leader_id} in {replica.leader_epoch}")

    def stopped(self, replica: Replica) -> None:
        assert (replica.leadership, replica.follower_state) == (None, None)
        self.events.append(f"{replica} stopped")

    def suspended(self, replica: Replica) -> None:
        self.events.append(f"{replica} suspended")

    def resumed(self, replica: Replica) -> None:
        self.events.append(f"{replica} resumed")

    def deleted(self, replica: Replica) -> None:
        assert (replica.leadership, replica.follower_state) == (None, None)
        self.events.append(f"{replica} deleted")


def listener_of(brokers: Brokers, broker_id: int = 0) -> Told:
    """Have a listener told of one broker's roles from now on."""
    told = Told()
    brokers.brokers[broker_id].replicas.listeners.append(told)
    return told


@with_brokers(count=2)
async def test_role_listeners_of_a_partition_are_told_once_a_leader_epoch(brokers: Brokers) -> None:
    """A coordinator that loaded again at every ISR change would be busy with nothing else."""
    told = listener_of(brokers)
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(0,)))
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1,)))
    await brokers.delete_topic(topic_id)
    assert told.events == ["t-0 leads in 0", "t-0 leads on in 1", "t-0 follows 1 in 2", "t-0 deleted"]


@with_brokers(count=2)
async def test_role_listeners_of_a_leader_that_missed_an_epoch_hear_that_it_does_not_lead_on(
    brokers: Brokers,
) -> None:
    """Another replica may have led in the epoch between, and written what a coordinator would miss."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    told = listener_of(brokers)
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(0, 1), leader=1),
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(0, 1), leader=0),
    )
    assert told.events == ["t-0 leads in 2"]


@with_brokers(count=2)
async def test_role_listeners_of_a_partition_that_moves_away_hear_nothing_afterwards(
    brokers: Brokers,
) -> None:
    """Whatever is still at work on the log would else bring back what a listener has let go of."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    told = listener_of(brokers)
    replica = brokers.replica(0, topic_id)
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1)
    )
    replica.fail_if_storage(KafkaError(ErrorCode.kafka_storage_error, "told late"))
    assert told.events == ["t-0 deleted"]


@with_brokers(count=2)
async def test_role_listeners_hear_of_a_lease_whatever_the_role(brokers: Brokers) -> None:
    """One that becomes leader without a lease is not to serve before it is told that it may."""
    topic_id = await brokers.create_topic("t", [(1, 0)])
    told = listener_of(brokers)
    broker = brokers.brokers[0]
    broker.holds_lease = False
    broker.replicas.lease.obey()
    broker.replicas.lease.obey()
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    await brokers.create_topic("u", [(0,)])
    broker.holds_lease = True
    broker.replicas.lease.obey()
    assert told.events == [
        "t-0 suspended",
        "t-0 leads in 1",
        "u-0 suspended",
        "u-0 leads in 0",
        "t-0 resumed",
        "u-0 resumed",
    ]


@with_brokers()
async def test_replica_suspended_for_two_reasons_serves_when_both_are_over(brokers: Brokers) -> None:
    """A lease that comes back must not open a partition whose tier is not known yet."""
    topic_id = await brokers.create_topic("t", [(0,)])
    told = listener_of(brokers)
    replica = brokers.replica(0, topic_id)
    replica.suspend(Suspension.TIER)
    replica.suspend(Suspension.LEASE)
    replica.resume(Suspension.LEASE)
    with pytest.raises(KafkaError, match="does not lead"):
        replica.require_leader()
    replica.resume(Suspension.TIER)
    replica.require_leader()
    assert told.events == ["t-0 suspended", "t-0 resumed"]


@with_brokers(count=2)
async def test_role_listeners_hear_that_a_log_failed_or_is_damaged(brokers: Brokers) -> None:
    """What was loaded from it is not to be served on."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    told = listener_of(brokers)
    error = KafkaError(ErrorCode.kafka_storage_error, "its files are gone")
    brokers.replica(0, topic_id, 0).fail_if_storage(error)
    brokers.replica(0, topic_id, 1).found_damage(Damage(0, 1, "a bit has flipped"))
    assert told.events == ["t-0 stopped", "t-1 stopped"]


@with_brokers()
async def test_role_listeners_hear_that_the_broker_shuts_down(brokers: Brokers) -> None:
    """They may have something to write while the logs are open."""
    await brokers.create_topic("t", [(0,)])
    told = listener_of(brokers)
    await brokers.stop(0)
    assert told.events == ["t-0 stopped"]


@with_brokers(count=2)
async def test_delete_records_waiting_when_the_log_fails_is_told_at_once(brokers: Brokers) -> None:
    """Nobody is left who could say that the followers have deleted; its timeout may be weeks away."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch()))
    await brokers.stop(1)
    waiting = asyncio.ensure_future(channel.request(delete_records("t", 1, timeout_ms=2**31 - 1)))
    await until(lambda: len(brokers.brokers[0].replicas.delayed) == 1, "it waits for the follower")
    brokers.replica(0, topic_id).fail_if_storage(KafkaError(ErrorCode.kafka_storage_error, "gone"))
    async with asyncio.timeout(10):
        (row,) = rows(await waiting)
    assert row.error_code is ErrorCode.kafka_storage_error
