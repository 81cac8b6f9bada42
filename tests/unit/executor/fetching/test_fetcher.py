"""What followers ask of a leader that has nothing for them: requests are counted, at the leader."""

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from kio.schema.fetch.v17.response import FetchableTopicResponse, FetchResponse, PartitionData

from sparklog.executor.fetching.copies import Copies
from sparklog.executor.fetching.fetcher import Fetcher, FetcherSettings
from sparklog.executor.fetching.leader_fetches import FetchLimits
from sparklog.executor.fetching.machine.copy_pace import MOST_PAUSES
from sparklog.executor.fetching.machine.turn_size import TURN_US
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.partitions.replica import Replica
from sparklog.node.clocks import monotonic_ms, monotonic_us
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.partitions.test_producer_loads import NO_BACKOFF_HELPS, cut_and_held
from tests.unit.executor.requests import MILLISECOND, batch, produce, rows

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


def copies(brokers: Brokers, clock_us: Callable[[], int] = monotonic_us) -> Copies:
    """The copies of broker 1."""
    replicas = brokers.brokers[1].replicas
    return Copies(1, replicas.table, replicas.replication_quotas.follower, clock_us)


class Relay:
    """A port that leads to broker 0."""

    def __init__(self, port: int) -> None:
        self.accepted: list[asyncio.StreamWriter] = []
        self.requests = 0
        self.left = asyncio.Event()
        """Set when a client has ended its connection."""
        self._port = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(writer)
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass_requests_on(reader, back), _pass_on(there, writer))

    async def _pass_requests_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                length = await reader.readexactly(4)
                writer.write(length + await reader.readexactly(int.from_bytes(length, "big")))
                self.requests += 1
        self.left.set()
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


class Suspicions(BrokerSuspicions):
    """Counts the connections that were reported as lost."""

    lost = 0

    def connection_lost(self, broker_id: int) -> None:
        self.lost += 1
        super().connection_lost(broker_id)


@asynccontextmanager
async def fetcher_over_relay(
    brokers: Brokers, broker_epoch: Callable[[], int]
) -> AsyncIterator[tuple[Fetcher, Relay, Suspicions]]:
    """A fetcher of broker 1, beside those that it has."""
    relay = Relay(brokers.brokers[0].listener.port)
    suspicions = Suspicions(asyncio.get_running_loop())
    limits = FetchLimits(20_000, 20_000, 1, 1 << 20, 1 << 20, ExponentialBackoff(first_ms=20, max_ms=100))
    settings = FetcherSettings(limits, 20_000, None, warn_after_ms=20_000)
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()[:2]
        fetcher = Fetcher(1, broker_epoch, 0, address, settings, suspicions, copies(brokers))
        fetcher.start()
        try:
            yield fetcher, relay, suspicions
        finally:
            await fetcher.stop()


@with_brokers(count=2)
async def test_leader_that_closes_a_connection_without_requests_is_not_suspected(brokers: Brokers) -> None:
    """Brokers close idle connections; for half a second clients were kept from asking about its topics."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    replica = brokers.replica(1, topic_id)
    async with fetcher_over_relay(brokers, lambda: brokers.brokers[1].broker_epoch) as (
        fetcher,
        relay,
        suspicions,
    ):
        fetcher.add(replica)
        await until(lambda: (relay.requests, fetcher.requests_answered) == (2, 1), "a fetch that waits")
        fetcher.remove(replica)
        channel = await brokers.connect(0)
        await channel.request(produce(topic_id, batch(), acks=1))
        await until(lambda: fetcher.requests_answered == 2, "its answer")
        asked = relay.requests
        relay.accepted[0].close()
        await relay.left.wait()
        fetcher.add(replica)
        await until(lambda: relay.requests > asked, "a fetch over another connection")
        await channel.request(produce(topic_id, batch(), acks=1))
        await until(lambda: fetcher.requests_answered > 2, "its answer")
        assert (len(relay.accepted), suspicions.lost) == (2, 0)


@with_brokers(count=2)
async def test_follower_that_cannot_make_a_request_makes_it_again(brokers: Brokers) -> None:
    """The error went to the loop, and nothing was fetched from that leader any more."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    failures: list[MemoryError] = []

    def broker_epoch() -> int:
        if failures:
            raise failures.pop()
        return brokers.brokers[1].broker_epoch

    async with fetcher_over_relay(brokers, broker_epoch) as (fetcher, relay, _):
        fetcher.add(brokers.replica(1, topic_id, 0))
        await until(lambda: (relay.requests, fetcher.requests_answered) == (2, 1), "a fetch that waits")
        failures.append(MemoryError("no room for it"))
        fetcher.add(brokers.replica(1, topic_id, 1))
        await until(lambda: fetcher.requests_answered == 2, "an answer for both")
        assert (failures, len(relay.accepted)) == ([], 2)


@with_brokers(count=2)
async def test_follower_asks_for_less_after_an_answer_that_took_long(brokers: Brokers) -> None:
    """Beside the copy of small batches all that the broker leads would wait for turns of its loop."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    replica = brokers.replica(1, topic_id)
    replica.log.sync_identity()
    limits = FetchLimits(20_000, 20_000, 1, 10 << 20, 1 << 20, ExponentialBackoff(first_ms=20, max_ms=100))
    looks_ns = itertools.count(step=2 * TURN_US * 1_000)
    settings = FetcherSettings(limits, 20_000, None, 20_000, processor_ns=lambda: next(looks_ns))
    suspicions = BrokerSuspicions(asyncio.get_running_loop())
    fetcher = Fetcher(1, lambda: 1, 0, ("127.0.0.1", 1), settings, suspicions, copies(brokers))
    fetcher.add(replica)
    asked = fetcher._fetches.next_request(1)
    records = batch(value=bytes(400_000))
    fetcher._take_in(answer(topic_id, records))
    assert asked.max_bytes == 10 << 20
    assert fetcher._fetches.next_request(1).max_bytes == len(records) // 2


def answer(topic_id: UUID, *records: bytes) -> FetchResponse:
    """A leader's answer with records of partitions from 0 on."""
    return FetchResponse(
        throttle_time=0 * MILLISECOND,
        error_code=ErrorCode.none,
        session_id=7,
        responses=(
            FetchableTopicResponse(
                topic_id=topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition,
                        error_code=ErrorCode.none,
                        high_watermark=0,
                        aborted_transactions=(),
                        records=each,
                    )
                    for partition, each in enumerate(records)
                ),
            ),
        ),
    )


@with_brokers(count=3, config={"min.insync.replicas": "2"})
async def test_replica_out_of_sync_pauses_after_its_records_if_enough_others_are_in_sync(
    brokers: Brokers,
) -> None:
    """Moves of partitions took the loop's time, for which producers with acks=all waited."""
    moving, in_sync, needed = 0, 1, 2
    topic_id = await brokers.create_topic("t", [(0, 1, 2)] * 3)
    await brokers.elect(topic_id, moving, leader=0, isr=[0, 2])
    await brokers.elect(topic_id, needed, leader=0, isr=[0])
    looks_us = itertools.count(step=30_000)
    limits = FetchLimits(20_000, 20_000, 1, 10 << 20, 1 << 20, ExponentialBackoff(first_ms=20, max_ms=100))
    settings = FetcherSettings(limits, 20_000, None, 20_000)
    suspicions = BrokerSuspicions(asyncio.get_running_loop())
    held_back = copies(brokers, lambda: next(looks_us))
    fetcher = Fetcher(1, lambda: 1, 0, ("127.0.0.1", 1), settings, suspicions, held_back)
    replicas = [brokers.replica(1, topic_id, partition) for partition in (moving, in_sync, needed)]
    for replica in replicas:
        replica.log.sync_identity()
        fetcher.add(replica)
    fetcher._fetches.next_request(1)
    records = batch(value=bytes(400_000))
    began_ms = monotonic_ms()
    fetcher._take_in(answer(topic_id, records, records, records))
    ended_ms = monotonic_ms()
    assert [replica.log.log_end_offset for replica in replicas] == [1, 1, 1]
    (topic,) = fetcher._fetches.next_request(1).topics
    assert [each.partition for each in topic.partitions] == [in_sync, needed]
    # A third of the 30 ms between two looks at the clock was the copy's; the third look is at the pause.
    pause_ms = MOST_PAUSES * 10 - 30
    assert began_ms + pause_ms <= fetcher._fetches.next_rested_ms <= ended_ms + pause_ms
    await fetcher.stop()
