"""What followers ask of a leader that has nothing for them: requests are counted, at the leader."""

import asyncio
import gc
from typing import Any
from unittest.mock import patch

from sparklog.executor.partitions.replica import Replica
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.partitions.test_producer_loads import NO_BACKOFF_HELPS, cut_and_held
from tests.unit.executor.requests import batch, produce, rows

ROUND_TRIPS = 200
FEW = 10


async def fetches_during_round_trips(brokers: Brokers, leader: int) -> int:
    """Return how many Fetch requests a broker answers while somebody else has so many requests answered."""
    topic_id = await brokers.create_topic("elsewhere", [(leader,)])
    channel = await brokers.connect(leader)
    metrics = brokers.brokers[leader].listener.metrics.of("FetchFollower")
    before = metrics.count
    for _ in range(ROUND_TRIPS):
        (row,) = rows(await channel.request(produce(topic_id, batch())))
        assert row.error_code is ErrorCode.none
    return metrics.count - before


@with_brokers(count=2, config=NO_BACKOFF_HELPS)
async def test_follower_that_loads_all_its_producers_asks_its_leader_nothing(brokers: Brokers) -> None:
    """It began one session without partitions after the other, as fast as the leader could answer."""
    async with cut_and_held(brokers):
        assert await fetches_during_round_trips(brokers, 1) <= FEW


@with_brokers(
    count=2, config={"max.incremental.fetch.session.cache.slots": "0", "replica.fetch.backoff.ms": "60000"}
)
async def test_follower_all_of_whose_partitions_rest_asks_its_leader_nothing(brokers: Brokers) -> None:
    """A leader that refuses has enough to do; afterwards everybody is fetched for again."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    for partition in (0, 1):
        brokers.replica(0, topic_id, partition).suspend()
    metrics = brokers.brokers[0].listener.metrics.of("FetchFollower")
    answered = metrics.count
    await until(lambda: metrics.count > answered + 1, "refused fetches")
    assert await fetches_during_round_trips(brokers, 0) <= FEW
    for partition in (0, 1):
        brokers.replica(0, topic_id, partition).resume()
    channel = await brokers.connect(0)
    assert [row.error_code for row in rows(await channel.request(produce(topic_id, batch(), batch())))] == [
        ErrorCode.none,
        ErrorCode.none,
    ]


@with_brokers(
    count=2,
    config={"max.incremental.fetch.session.cache.slots": "0", "replica.fetch.wait.max.ms": "10000"},
)
async def test_follower_without_a_session_waits_at_the_leader(brokers: Brokers) -> None:
    """With no slot free it asked without waiting, over and over."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch()))
    assert await fetches_during_round_trips(brokers, 0) <= FEW
    (row,) = rows(await channel.request(produce(topic_id, batch())))
    assert row.error_code is ErrorCode.none


@with_brokers(count=2)
async def test_follower_that_has_no_memory_for_an_answer_asks_again(brokers: Brokers) -> None:
    """Its task ended, unseen by anybody, and with it the following of all partitions of that leader."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    real, failures = Replica.take_fetched, [MemoryError("no room for it")]

    def take_fetched(replica: Replica, *fetched: Any) -> Any:
        if fetched[1] and failures:
            raise failures.pop()
        return real(replica, *fetched)

    with patch.object(Replica, "take_fetched", take_fetched):
        (row,) = rows(await channel.request(produce(topic_id, batch())))
    assert row.error_code is ErrorCode.none
    assert failures == []


@with_brokers(count=2, config={"replica.fetch.wait.max.ms": "10000"})
async def test_follower_that_stops_with_two_requests_under_way_leaves_no_error_behind(
    brokers: Brokers,
) -> None:
    """The one that was not waited for was logged as an exception that nobody had retrieved."""
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    await brokers.create_topic("t", [(0, 1)])
    metrics = brokers.brokers[0].listener.metrics.of("FetchFollower")
    await until(lambda: metrics.count > 0, "a session")
    # The second request passes one that waits at the leader.
    await brokers.create_topic("u", [(0, 1)])
    await brokers.stop(1)
    gc.collect()
    assert unseen == []
