"""A follower's questions to leaders: many partitions at once, and each with an answer of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from sparklog.executor.fetching.leader_offsets import LeaderOffsets, LedPartition
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS
from sparklog.node.metadata.schemas import BrokerEndpoint, RegisterBrokerRecord
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition
from tests.unit.executor.brokers import Brokers, with_brokers

COUNT = 40
RELAYED = 5


@asynccontextmanager
async def relayed(brokers: Brokers) -> AsyncIterator[list[None]]:
    """Let connections to broker `RELAYED` reach broker 0; yields an entry for each."""
    connections: list[None] = []
    port = brokers.brokers[0].listener.port

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(None)
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        at = server.sockets[0].getsockname()[1]
        listener = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=at, security_protocol=0)
        await brokers.commit(
            RegisterBrokerRecord(
                broker_id=RELAYED,
                incarnation_id=uuid4(),
                broker_epoch=1,
                end_points=(listener,),
                rack=None,
                fenced=False,
            )
        )
        yield connections


def offsets_for(table: PartitionTable) -> LeaderOffsets:
    return LeaderOffsets(1, table, 20_000, NO_CREDENTIALS)


@with_brokers(count=1)
async def test_followers_that_begin_at_once_share_the_requests_to_their_leader(brokers: Brokers) -> None:
    """On an empty disk there are hundreds, and a connection takes longer than an answer."""
    await brokers.create_topic("t", [(0,)] * COUNT)
    offsets = offsets_for(brokers.brokers[0].replicas.table)
    led = [LedPartition(TopicPartition("t", number), 0) for number in range(COUNT)]
    wrong = [LedPartition(TopicPartition("t", 3), 7), LedPartition(TopicPartition("t", COUNT), 0)]
    async with relayed(brokers) as connections:
        answers = await asyncio.gather(
            *(offsets.local_start_and_tiered_end(RELAYED, each) for each in (*led, *wrong)),
            return_exceptions=True,
        )
    assert answers[:COUNT] == [(0, None)] * COUNT
    assert [each.error_code for each in answers[COUNT:] if isinstance(each, KafkaError)] == [
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert len(connections) == 2, "one for all, and one again for the partition that was named twice"


@with_brokers(count=1)
async def test_leader_that_cannot_be_reached_fails_every_question(brokers: Brokers) -> None:
    """None of the followers waits for ever, and the next question is asked as usual."""
    await brokers.create_topic("t", [(0,), (0,)])
    offsets = offsets_for(brokers.brokers[0].replicas.table)
    led = [LedPartition(TopicPartition("t", number), 0) for number in range(2)]
    answers = await asyncio.gather(
        *(offsets.local_start_and_tiered_end(9, each) for each in led), return_exceptions=True
    )
    assert [each.error_code for each in answers if isinstance(each, KafkaError)] == [
        ErrorCode.network_exception
    ] * 2
    assert await offsets.local_start_and_tiered_end(0, led[0]) == (0, None)


@with_brokers(count=1)
async def test_question_ends_with_its_follower(brokers: Brokers) -> None:
    """The others of the same request are answered."""
    await brokers.create_topic("t", [(0,), (0,)])
    offsets = offsets_for(brokers.brokers[0].replicas.table)
    first, second = (
        asyncio.ensure_future(offsets.local_start_and_tiered_end(0, LedPartition(TopicPartition("t", n), 0)))
        for n in range(2)
    )
    await asyncio.sleep(0)
    first.cancel()
    assert await second == (0, None)
    with pytest.raises(asyncio.CancelledError):
        await first
