"""Appends that wait while their leader goes on to lead in the next leader epoch."""

import asyncio
from typing import Any
from uuid import UUID

from sparklog.node.metadata.schemas import PartitionChangeRecord
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, produce, rows


async def begin_to_wait(brokers: Brokers, topic_id: UUID) -> "asyncio.Task[Any]":
    """Stop broker 2, which is in sync; return an append with acks=all that waits for it."""
    await brokers.stop(2)
    channel = await brokers.connect(0)
    replica = brokers.replica(0, topic_id)
    before = replica.log.log_end_offset
    sending = asyncio.create_task(_sent(channel, topic_id))
    await until(lambda: replica.log.log_end_offset > before, "the append")
    return sending


async def _sent(channel: Any, topic_id: UUID) -> tuple[ErrorCode, int]:
    (row,) = rows(await channel.request(produce(topic_id, batch())))
    return row.error_code, row.base_offset


async def reassigned(brokers: Brokers, topic_id: UUID, leader: BrokerId) -> None:
    """End a reassignment that removes broker 2."""
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(0, 1), isr=(0, 1), leader=leader)
    )


@with_brokers(count=3)
async def test_append_waits_on_when_a_reassignment_ends_and_its_leader_stays(brokers: Brokers) -> None:
    """Each move of a follower's replica would cost all that wait an error, and a producer its pause."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    sending = await begin_to_wait(brokers, topic_id)
    assert not sending.done()
    await reassigned(brokers, topic_id, leader=0)
    assert await sending == (ErrorCode.none, 0)
    assert brokers.replica(0, topic_id).leader_epoch == 1


@with_brokers(count=3)
async def test_append_is_refused_when_a_reassignment_ends_and_another_leads(brokers: Brokers) -> None:
    """What only the former leader has is cut off."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    sending = await begin_to_wait(brokers, topic_id)
    await reassigned(brokers, topic_id, leader=1)
    assert (await sending)[0] is ErrorCode.not_leader_or_follower


@with_brokers(count=3, config={"min.insync.replicas": "2"})
async def test_append_fails_when_the_next_epoch_begins_with_too_few_in_sync(brokers: Brokers) -> None:
    """Nothing is committed there: it would wait for its time-out."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    sending = await begin_to_wait(brokers, topic_id)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    assert (await sending)[0] is ErrorCode.not_enough_replicas_after_append


@with_brokers(count=3)
async def test_append_is_refused_when_another_may_have_led_in_between(brokers: Brokers) -> None:
    """A broker that missed a leader epoch does not know what was written in it."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    sending = await begin_to_wait(brokers, topic_id)
    change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)
    await brokers.commit(change, PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=0))
    assert (await sending)[0] is ErrorCode.not_leader_or_follower
    assert brokers.replica(0, topic_id).leader_epoch == 2
