"""Turns at the store: in order, but for the partitions that clients wait for."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparklog.executor.partitions.replica import Suspension
from sparklog.executor.tiering.store_turns import StoreTurns
from sparklog.node.calling.list_offsets_request import AskedOffset, list_offsets_request
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.requests import batch, fetch, produce


@dataclass
class Waiter:
    name: str
    is_wanted: bool = False


async def take(turns: StoreTurns, waiter: Waiter, taken: list[str], go_on: asyncio.Event) -> None:
    async with turns.turn(waiter):
        taken.append(waiter.name)
        await go_on.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_partitions_that_clients_ask_for_are_next_and_the_others_keep_their_order() -> None:
    """A client asks for one partition of a thousand, after all of them began to wait."""

    async def body() -> None:
        turns, taken, go_on = StoreTurns(1), list[str](), asyncio.Event()
        waiters = [Waiter(name) for name in "abcd"]
        holder = asyncio.create_task(take(turns, Waiter("holder"), taken, go_on))
        await settle()
        tasks = [asyncio.create_task(take(turns, each, taken, go_on)) for each in waiters]
        await settle()
        late = asyncio.create_task(take(turns, Waiter("e"), taken, go_on))
        await settle()
        assert taken == ["holder"]
        waiters[2].is_wanted = True
        go_on.set()
        await asyncio.gather(*tasks, holder, late)
        assert taken == ["holder", "c", "a", "b", "d", "e"]

    asyncio.run(body())


@pytest.mark.parametrize("steps", range(5))
def test_turn_of_a_partition_that_is_led_no_more_goes_to_the_next(steps: int) -> None:
    """A lost turn would leave all others waiting for ever, one after the other."""

    async def body() -> None:
        turns, taken, go_on = StoreTurns(1), list[str](), asyncio.Event()
        holder, waiting, given, last = (
            asyncio.create_task(take(turns, Waiter(name), taken, go_on)) for name in "abcd"
        )
        await settle()
        waiting.cancel()
        holder.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        # Before its turn, with it and not yet awake, or while it has it.
        given.cancel()
        await settle()
        assert taken[-1] == "d"
        go_on.set()
        await last
        async with turns.turn(Waiter("e")):
            pass

    asyncio.run(body())


@pytest.mark.parametrize("ask", ["fetch", "produce", "list_offsets", "follower"])
def test_clients_requests_make_a_partition_wanted_and_followers_do_not(tmp_path: Path, ask: str) -> None:
    """Followers fetch every partition from the first moment on."""

    @with_brokers(count=2)
    async def body(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)])
        replica = brokers.replica(0, topic_id)
        replica.suspend(Suspension.TIER)
        channel = await brokers.connect(0)
        assert not replica.is_wanted
        requests = {
            "fetch": fetch(topic_id, {0: 0}),
            "produce": produce(topic_id, batch(1)),
            "list_offsets": list_offsets_request([AskedOffset("t", 0, -1)]),
            "follower": fetch(topic_id, {0: 0}, replica=(1, brokers.brokers[1].broker_epoch)),
        }
        await channel.request(requests[ask])
        assert replica.is_wanted == (ask != "follower")

    body(tmp_path)
