"""What one broker asks of another: a connection that is shared, and made again when it was lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.node.endpoints import Endpoint
from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.node.serving.requests import Api, Deferred, Peer, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError

REQUEST = WriteTxnMarkersRequest(markers=())
RESPONSE = WriteTxnMarkersResponse(markers=())


class _Broker:
    """A listener that answers WriteTxnMarkers, and remembers by which connections it was asked."""

    def __init__(self) -> None:
        self.connections: list[Peer] = []
        self.answers = True
        self.asked = asyncio.Event()

    def _write_txn_markers(self, request: Request) -> Any:
        if request.connection not in self.connections:
            self.connections.append(request.connection)
        self.asked.set()
        return RESPONSE if self.answers else Deferred()

    @asynccontextmanager
    async def listens(self, port: int = 0) -> AsyncIterator[Listener]:
        table = {ApiKey.WRITE_TXN_MARKERS: Api(1, 2, self._write_txn_markers)}
        listener = await Listener.start("127.0.0.1", port, Service(apis=table), ListenerIdentity(name="test"))
        try:
            yield listener
        finally:
            await listener.close()


def test_connections_to_one_broker_are_shared_and_made_again_when_lost() -> None:
    """Many ask at once after a failover: that must not be a connection each, nor one that stays dead."""

    async def scenario() -> None:
        broker = _Broker()
        endpoints: dict[int, Endpoint] = {}
        connections = BrokerConnections("broker-1-test", endpoints.get, 5_000)
        async with broker.listens() as listener:
            endpoints[2] = Endpoint("PLAINTEXT", "127.0.0.1", listener.port)
            answers = await asyncio.gather(*(connections.request(2, REQUEST) for _ in range(5)))
            assert answers == [RESPONSE] * 5
            assert len(broker.connections) == 1
        with pytest.raises(KafkaError) as lost:
            await connections.request(2, REQUEST)
        assert lost.value.error_code is ErrorCode.network_exception
        async with broker.listens() as moved:
            endpoints[2] = Endpoint("PLAINTEXT", "127.0.0.1", moved.port)
            assert await connections.request(2, REQUEST) == RESPONSE
            assert len(broker.connections) == 2
            await connections.close()

    asyncio.run(scenario())


def test_connections_refuse_a_broker_without_an_address_and_fail_what_waits_when_closed() -> None:
    """Whoever waits for an answer is to hear that there is none."""

    async def scenario() -> None:
        broker = _Broker()
        broker.answers = False
        async with broker.listens() as listener:
            endpoint = Endpoint("PLAINTEXT", "127.0.0.1", listener.port)
            connections = BrokerConnections("broker-1-test", {2: endpoint}.get, 5_000)
            with pytest.raises(KafkaError) as unknown:
                await connections.request(3, REQUEST)
            assert unknown.value.error_code is ErrorCode.network_exception
            waiting = asyncio.create_task(connections.request(2, REQUEST))
            await broker.asked.wait()
            await connections.close()
            with pytest.raises(KafkaError):
                await waiting
            with pytest.raises(KafkaError):
                await connections.request(2, REQUEST)

    asyncio.run(scenario())


def test_request_whose_broker_moves_while_it_is_connected_to_fails_and_cancels_nobody() -> None:
    """Who is told that he is cancelled ends: markers, or verifications, would never be sent again."""

    async def scenario() -> None:
        broker = _Broker()
        async with broker.listens() as listener:
            endpoint = Endpoint("PLAINTEXT", "127.0.0.1", listener.port)
            silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
            endpoints = {2: Endpoint("PLAINTEXT", "127.0.0.1", silent.sockets[0].getsockname()[1])}
            connections = BrokerConnections("broker-1-test", endpoints.get, 5_000)
            first = asyncio.ensure_future(connections.request(2, REQUEST))
            await asyncio.sleep(0)
            endpoints[2] = endpoint
            assert await connections.request(2, REQUEST) == RESPONSE
            with pytest.raises(KafkaError) as moved:
                await first
            assert moved.value.error_code is ErrorCode.network_exception
            await connections.close()
            silent.close()

    asyncio.run(scenario())
