"""Whom a task's client asks for leaders, and when, over real connections to brokers that play dead."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.metadata.v11.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from sparklog.client.cluster import Cluster, Leader
from sparklog.client.config import ClientConfig
from sparklog.errors import ErrorCode
from sparklog.types import BrokerId, TopicPartition
from sparklog.wire.apis import ApiKey
from sparklog.wire.requests import Api, Deferred, Request
from sparklog.wire.server import Listener
from tests.unit.wire.serving import run

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
Result = TypeVar("Result")


class Brokers:
    """Three brokers that know who leads, and note who was asked; fetches from them stay unanswered."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.leaders: dict[TopicPartition, Leader] = {FIRST: Leader(0, 1), SECOND: Leader(1, 1)}
        self.asked: list[BrokerId] = []

    async def listen(self, closing: AsyncExitStack) -> None:
        for broker_id in range(3):
            apis = {
                ApiKey.METADATA: Api(11, 11, self._metadata(broker_id)),
                ApiKey.FETCH: Api(12, 12, lambda _: Deferred()),
            }
            listener = await Listener.start("127.0.0.1", 0, apis, name=f"broker-{broker_id}")
            closing.push_async_callback(listener.close)
            self.listeners.append(listener)

    def client(self) -> Cluster:
        """Return a client that was given the last broker's address."""
        address = ("127.0.0.1", self.listeners[-1].port)
        return Cluster(ClientConfig(bootstrap_servers=(address,), request_timeout_ms=5_000))

    def asked_since(self) -> list[BrokerId]:
        asked, self.asked = self.asked, []
        return asked

    def _metadata(self, broker_id: BrokerId) -> Callable[[Request], Any]:
        def answer(_: Request) -> MetadataResponse:
            self.asked.append(broker_id)
            return MetadataResponse(
                throttle_time=timedelta(0),
                brokers=tuple(
                    MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=listener.port, rack=None)
                    for node_id, listener in enumerate(self.listeners)
                ),
                cluster_id="c",
                controller_id=0,
                topics=(
                    MetadataResponseTopic(
                        error_code=ErrorCode.none,
                        name="t",
                        topic_id=UUID(int=1),
                        is_internal=False,
                        partitions=tuple(
                            MetadataResponsePartition(
                                error_code=ErrorCode.none,
                                partition_index=partition,
                                leader_id=leader.broker_id,
                                leader_epoch=leader.leader_epoch,
                                replica_nodes=(0, 1, 2),
                                isr_nodes=(0, 1, 2),
                                offline_replicas=(),
                            )
                            for (_, partition), leader in self.leaders.items()
                        ),
                    ),
                ),
            )

        return answer


@asynccontextmanager
async def three_brokers() -> AsyncIterator[Brokers]:
    async with AsyncExitStack() as closing:
        brokers = Brokers()
        await brokers.listen(closing)
        yield brokers


def with_client(use: Callable[[Brokers, Cluster], None]) -> None:
    """Run `use` beside three brokers, in a thread of its own, as it blocks."""

    async def scenario() -> None:
        async with three_brokers() as brokers:
            with brokers.client() as client:
                await asyncio.to_thread(use, brokers, client)

    run(scenario())


def test_leader_known_from_before_the_retry_is_asked_for_anew() -> None:
    """Other partitions of the topic may have asked while the dead broker was still the leader."""

    def use(brokers: Brokers, client: Cluster) -> None:
        assert client.leader(FIRST) == Leader(0, 1)
        learned_ms = client.topic("t").learned_ms
        brokers.leaders[FIRST] = Leader(2, 2)
        assert client.leader(FIRST) == Leader(0, 1)
        assert client.leader(FIRST, learned_after_ms=learned_ms) == Leader(0, 1)
        assert client.leader(FIRST, learned_after_ms=learned_ms + 1) == Leader(2, 2)
        assert client.leader(FIRST) == Leader(2, 2)

    with_client(use)


def test_lost_broker_is_asked_last() -> None:
    """It may be dead, and a dead host refuses nothing: connecting to it takes all the time there is."""

    def use(brokers: Brokers, client: Cluster) -> None:
        client.leader(FIRST)
        client.channel(0)
        client.channel(1)
        brokers.asked_since()
        client.disconnect(0)
        client.forget_leader(FIRST)
        client.leader(FIRST)
        client.disconnect(1)
        client.leader(SECOND)
        assert brokers.asked_since() == [1, 2]
        client.channel(0)
        client.forget_leader(FIRST)
        client.leader(FIRST)
        assert 1 not in brokers.asked_since()

    with_client(use)


def test_busy_broker_is_asked_by_another_connection() -> None:
    """Answers come in order, and the leaders are wanted before records are acknowledged."""

    def use(brokers: Brokers, client: Cluster) -> None:
        client.leader(FIRST)
        brokers.asked_since()
        busy = client.channel(1)
        busy.send(FetchRequest(max_wait=timedelta(0), min_bytes=1, topics=(), forgotten_topics_data=()))
        client.disconnect(0)
        client.leader(FIRST)
        assert brokers.asked_since() == [1]
        assert client.channel(1) is busy
        assert busy.outstanding == 1

    with_client(use)
