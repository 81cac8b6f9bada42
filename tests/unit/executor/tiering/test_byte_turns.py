"""Copies wait for their rate, and an orderly stop for no rate."""

import asyncio

from sparklog.executor.tiering.byte_turns import ByteTurns


def test_copy_that_waits_for_its_rate_begins_when_the_cluster_stops() -> None:
    """A rate of a few bytes a second would hold up the stop for hours."""

    async def play() -> None:
        turns = ByteTurns(1)
        await turns.wait(1_000_000)
        async with asyncio.timeout(30):
            waiting = asyncio.create_task(turns.wait(1))
            await asyncio.sleep(0)
            assert not waiting.done()
            turns.limit(1, is_lifted=True)
            await waiting
            await turns.wait(1_000_000)
        turns.limit(1, is_lifted=False)
        held = asyncio.create_task(turns.wait(1))
        await asyncio.sleep(0)
        assert not held.done()
        held.cancel()

    asyncio.run(play())
