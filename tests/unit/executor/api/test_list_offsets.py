"""Times that are looked up beside the loop while the leadership goes."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kio.schema.list_offsets.v6.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from sparklog.executor.api.list_offsets import ListOffsetsHandler
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from tests.counted_work import counted_calls
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.partitions.test_following import list_offsets
from tests.unit.executor.requests import batch, produce, rows
from tests.unit.sparklog.node.storage.calls import calls_of


async def looked_up_during(
    brokers: Brokers, change: Callable[[Any], Awaitable[None]], epoch: int = -1
) -> Any:
    """Have broker 0 look the time 0 up in a topic; `change` things while it reads. Return its answer."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch()))
    reading, may_go_on = threading.Event(), threading.Event()

    def hold(path: str, _: object) -> None:
        if "broker-0/t-0" in path and threading.current_thread().name.startswith("sparklog-log"):
            reading.set()
            may_go_on.wait(20)

    with calls_of("pread", hold):
        try:
            answer = asyncio.ensure_future(channel.request(list_offsets("t", 0, epoch)))
            await until(reading.is_set, "the look-up")
            await change(topic_id)
        finally:
            may_go_on.set()
        (row,) = rows(await answer)
    return row.error_code, row.offset


@with_brokers(count=2)
async def test_time_looked_up_while_the_lease_runs_out_is_not_answered(brokers: Brokers) -> None:
    """Another broker may lead by then and have appended, or cut, what the answer is about."""

    async def change(_: Any) -> None:
        brokers.brokers[0].holds_lease = False

    assert await looked_up_during(brokers, change) == (ErrorCode.not_leader_or_follower, -1)


async def led_by_another_in_between(brokers: Brokers, topic_id: Any) -> None:
    """Broker 1 leads, and then broker 0 again."""
    for leader in (1, 0):
        await brokers.elect(topic_id, 0, leader, (0, 1))


@with_brokers(count=2)
async def test_time_looked_up_in_a_leadership_that_ended_is_not_answered_later(
    brokers: Brokers,
) -> None:
    """What may be read was compared with the high watermark of the leadership before."""
    answered = await looked_up_during(brokers, lambda topic_id: led_by_another_in_between(brokers, topic_id))
    assert answered == (ErrorCode.not_leader_or_follower, -1)


@with_brokers(count=2)
async def test_time_asked_for_in_a_leader_epoch_that_ended_meanwhile_is_fenced(brokers: Brokers) -> None:
    """As if the request had come after the election (KIP-320)."""
    answered = await looked_up_during(
        brokers, lambda topic_id: led_by_another_in_between(brokers, topic_id), epoch=0
    )
    assert answered == (ErrorCode.fenced_leader_epoch, -1)


@with_brokers(count=2)
async def test_time_looked_up_while_nothing_changes_is_answered(brokers: Brokers) -> None:
    """The other tests show something only if this holds."""

    async def change(_: Any) -> None:
        pass

    assert await looked_up_during(brokers, change) == (ErrorCode.none, 0)


@pytest.mark.parametrize(("topics", "partitions"), [(1, 20_000), (20_000, 1)])
def test_many_partitions_are_looked_at_in_steps(topics: int, partitions: int) -> None:
    """An old client's request for all partitions of a large cluster held everybody else up."""
    asked = tuple(
        ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=-1)
        for number in range(partitions)
    )
    body = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=tuple(ListOffsetsTopic(name=f"t{number}", partitions=asked) for number in range(topics)),
    )
    request = Request(
        ApiKey.LIST_OFFSETS,
        6,
        1,
        "test",
        body,
        memoryview(b""),
        None,
        "PLAINTEXT",  # type: ignore[arg-type]
    )
    with ThreadPoolExecutor(1) as executor:
        steps: Any = ListOffsetsHandler(PartitionTable("PLAINTEXT"), executor).handle(request)
        calls, response = [], None
        while response is None:
            with counted_calls() as count:
                try:
                    steps.send(None)
                except StopIteration as last:
                    response = last.value
            calls.append(count.value)
    rows = [row for topic in response.topics for row in topic.partitions]
    assert len(rows) == 20_000
    assert {row.error_code for row in rows} == {ErrorCode.unknown_topic_or_partition}
    assert max(calls) < 500  # that is the first of a kind
