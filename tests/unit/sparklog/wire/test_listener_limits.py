"""What a listener does for Kafka's connection and socket settings."""

import asyncio
import socket

from sparklog.wire.channel import Channel
from sparklog.wire.connection_quotas import ConnectionQuotas
from sparklog.wire.listener import Listener
from sparklog.wire.socket_settings import SocketSettings
from tests.unit.sparklog.wire.open_sockets import backlog, bound_to, connected_to, listens, open_sockets
from tests.unit.sparklog.wire.serving import HEARTBEAT_ONLY, RawClient, heartbeat, run, serving, until


async def connect_from(address: str, listener: Listener) -> RawClient:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(address, 0))
    return RawClient(reader, writer)


async def is_served(client: RawClient) -> bool:
    """Whether the connection was taken, told by its first answer or its end."""
    client.send(heartbeat())
    try:
        await client.receive()
    except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
        return False
    return True


def test_second_connection_of_an_address_is_refused_until_the_first_ends() -> None:
    """max.connections.per.ip keeps one host from crowding the others out, and only that host."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, quotas=ConnectionQuotas(max_connections_per_ip=1)) as listener:
            first = await connect_from("127.0.0.1", listener)
            assert await is_served(first)
            assert not await is_served(await connect_from("127.0.0.1", listener))
            another = await connect_from("127.0.0.2", listener)
            assert await is_served(another)
            first.close()
            await until(lambda: listener.connection_count == 1)
            assert await is_served(await connect_from("127.0.0.1", listener))
            assert await is_served(another)

    run(scenario())


def test_listeners_of_one_broker_share_their_quotas_and_the_brokers_own_is_excepted() -> None:
    """max.connections bounds the broker, but clients must not shut its followers out."""

    async def scenario() -> None:
        quotas = ConnectionQuotas(max_connections=2)
        async with (
            serving(HEARTBEAT_ONLY, quotas=quotas) as one,
            serving(HEARTBEAT_ONLY, quotas=quotas) as other,
            serving(HEARTBEAT_ONLY, quotas=quotas, reserved=True) as brokers_own,
        ):
            kept = [await connect_from("127.0.0.1", listener) for listener in (one, other)]
            assert [await is_served(client) for client in kept] == [True, True]
            assert not await is_served(await connect_from("127.0.0.1", one))
            assert not await is_served(await connect_from("127.0.0.1", other))
            assert await is_served(await connect_from("127.0.0.1", brokers_own))

    run(scenario())


def test_idle_connection_is_closed_after_its_time_and_not_before() -> None:
    """Clients close theirs a little sooner (connections.max.idle.ms on both sides), and rely on the rest."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving(HEARTBEAT_ONLY, settings=SocketSettings(connections_max_idle_ms=200)) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            asked_s = loop.time()
            await client.receive()
            assert await client.closed_by_server()
            assert loop.time() - asked_s >= 0.2
            assert listener.connection_count == 0

    run(scenario())


def test_sockets_have_the_buffers_and_the_backlog_that_are_configured() -> None:
    """socket.receive.buffer.bytes, socket.send.buffer.bytes, socket.listen.backlog.size; Linux doubles."""
    settings = SocketSettings(receive_buffer_bytes=20_000, send_buffer_bytes=30_000, listen_backlog_size=7)

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, settings=settings) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test", receive_buffer_bytes=10_000)
            await channel.request(heartbeat())
            with open_sockets(bound_to(listener.port)) as (one, other):
                listening, accepted = (one, other) if listens(one) else (other, one)
                assert backlog(listening) == 7
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 40_000
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 60_000
            with open_sockets(connected_to(listener.port)) as (connecting,):
                assert connecting.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 20_000
            channel.close()

    run(scenario())
