"""What a listener does for Kafka's connection and socket settings."""

import asyncio
import socket
import struct
from functools import partial
from unittest.mock import patch

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from sparklog.node.calling.channel import Channel
from sparklog.node.limits import reserved_connections
from sparklog.node.limits.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    ListenerLimits,
    ListenerQuota,
)
from sparklog.node.limits.request_memory import RequestMemory
from sparklog.node.rates import QuotaWindows, SampledRate
from sparklog.node.serving.admission import OPEN, Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.listener import (
    ClusterConnections,
    Listener,
    ListenerBounds,
    ListenerIdentity,
    Service,
)
from sparklog.node.serving.machine.authenticator import Mechanisms
from sparklog.node.serving.socket_settings import SocketSettings
from sparklog.protocol.errors import ErrorCode
from tests.application_secret import CLUSTER_ADMISSION, SECRET
from tests.unit.sparklog.node.serving.open_sockets import (
    backlog,
    bound_to,
    connected_to,
    listens,
    open_sockets,
)
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    Metered,
    RawClient,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)


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
        async with serving(
            HEARTBEAT_ONLY, quotas=ConnectionQuotas(ConnectionLimits(max_connections_per_ip=1))
        ) as listener:
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


def test_address_with_an_override_has_that_many_connections() -> None:
    """max.connections.per.ip.overrides: a proxy needs more than others, an old host fewer."""

    async def scenario() -> None:
        limits = ConnectionLimits(
            max_connections_per_ip=1, max_connections_per_ip_overrides={"127.0.0.2": 2, "127.0.0.3": 0}
        )
        async with serving(HEARTBEAT_ONLY, quotas=ConnectionQuotas(limits)) as listener:
            for address, served in (("127.0.0.1", 1), ("127.0.0.2", 2), ("127.0.0.3", 0)):
                clients = [await connect_from(address, listener) for _ in range(3)]
                assert [await is_served(client) for client in clients] == [
                    number < served for number in range(3)
                ]

    run(scenario())


def test_limits_that_change_hold_for_the_next_connections() -> None:
    """Nobody who is served is cut off, and nobody waits for a restart."""

    async def scenario() -> None:
        quotas = ConnectionQuotas()
        async with serving(HEARTBEAT_ONLY, quotas=quotas) as listener:
            kept = [await connect_from("127.0.0.1", listener) for _ in range(3)]
            assert [await is_served(client) for client in kept] == [True] * 3
            quotas.limits = ConnectionLimits(max_connections=2)
            assert not await is_served(await connect_from("127.0.0.1", listener))
            assert [await is_served(client) for client in kept] == [True] * 3
            quotas.limits = ConnectionLimits()
            assert await is_served(await connect_from("127.0.0.1", listener))

    run(scenario())


def test_connections_come_no_faster_than_the_broker_takes_them() -> None:
    """max.connection.creation.rate: after a restart a thousand clients come at once. None is refused."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        quotas = ConnectionQuotas(
            ConnectionLimits(max_connection_creation_rate=20), windows=QuotaWindows(2, 100)
        )
        async with serving(HEARTBEAT_ONLY, quotas=quotas) as listener:
            began_s = loop.time()
            clients = [await connect_from("127.0.0.1", listener) for _ in range(12)]
            assert [await is_served(client) for client in clients] == [True] * 12
            assert loop.time() - began_s > 0.3

    run(scenario())


def test_listener_with_a_limit_of_its_own_takes_no_more_and_the_others_do() -> None:
    """listener.name.<name>.max.connections: one network's clients leave the others' alone."""

    async def scenario() -> None:
        quotas = ConnectionQuotas()
        async with (
            serving(HEARTBEAT_ONLY, quotas=quotas, own_quota=ListenerQuota(ListenerLimits(1))) as small,
            serving(HEARTBEAT_ONLY, quotas=quotas) as other,
        ):
            kept = await connect_from("127.0.0.1", small)
            assert await is_served(kept)
            assert not await is_served(await connect_from("127.0.0.1", small))
            assert await is_served(await connect_from("127.0.0.1", other))
            assert await is_served(kept)
            assert (small.refused_count, other.refused_count) == (1, 0)

    run(scenario())


def test_listener_with_a_rate_of_its_own_pauses_as_long_as_that_takes() -> None:
    """Even the brokers' own, as in Kafka: whoever sets it for that listener means it."""
    quota = ListenerQuota(ListenerLimits(max_connection_creation_rate=1), windows=QuotaWindows(2, 1_000))
    assert [quota.opened(0) for _ in range(3)] == [0, 1_000, 1_000]


def test_brokers_own_connections_are_not_waited_for() -> None:
    """Followers that come back after a restart stand in no line with a thousand clients."""
    quotas = ConnectionQuotas(
        ConnectionLimits(max_connection_creation_rate=1), windows=QuotaWindows(2, 1_000)
    )
    assert [quotas.opened("10.0.0.1", 0, reserved=True) for _ in range(5)] == [0] * 5
    assert [quotas.opened("10.0.0.1", 0, reserved=False) for _ in range(3)] == [0, 1_000, 1_000]


def test_address_that_connects_too_often_is_closed_late_and_unanswered() -> None:
    """connection_creation_rate (KIP-612): closed at once, it would come again at once."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        quotas = ConnectionQuotas(windows=QuotaWindows(2, 1_000))
        quotas.rate_of = {"127.0.0.2": 2.0}.get
        async with serving(HEARTBEAT_ONLY, quotas=quotas) as listener:
            kept = [await connect_from("127.0.0.2", listener) for _ in range(2)]
            assert [await is_served(client) for client in kept] == [True, True]
            began_s = loop.time()
            assert not await is_served(await connect_from("127.0.0.2", listener))
            assert loop.time() - began_s > 0.2
            assert listener.connection_count == 2
            assert await is_served(await connect_from("127.0.0.1", listener))
            await until(lambda: quotas.held_back_ms("127.0.0.2", int(loop.time() * 1000)) == 0)
            quotas.rate_of = lambda address: None
            assert await is_served(await connect_from("127.0.0.2", listener))

    run(scenario())


def test_listener_that_closes_drops_whom_it_holds_back() -> None:
    """A socket that nobody closes is a descriptor lost."""

    async def scenario() -> None:
        quotas = ConnectionQuotas(windows=QuotaWindows(2, 60_000))
        quotas.rate_of = lambda address: 0.001
        async with serving(HEARTBEAT_ONLY, quotas=quotas) as listener:
            client = await connect_from("127.0.0.1", listener)
            await until(lambda: len(listener._held_back) == 1)
        assert await client.closed_by_server()

    run(scenario())


def test_requests_in_pieces_wait_for_memory_that_others_have() -> None:
    """queued.max.request.bytes: many slow uploads at a time must not fill a broker."""

    async def scenario() -> None:
        memory = RequestMemory(1_000)
        async with serving(HEARTBEAT_ONLY, memory=memory) as listener:
            slow, waiting, small = [await connect_from("127.0.0.1", listener) for _ in range(3)]
            large = [client.frame(heartbeat(group_id="g" * 900)) for client in (slow, waiting)]
            slow.writer.write(large[0][:500])
            (first,) = [each for each in listener._connections if each.peer.endswith(port_of(slow))]
            await until(lambda: first._claim.size_bytes > 0)
            waiting.writer.write(large[1][:200])
            (second,) = [each for each in listener._connections if each.peer.endswith(port_of(waiting))]
            await until(lambda: second._claim.size_bytes > 0)  # one more than fits, or none ever would
            blocked = await connect_from("127.0.0.1", listener)
            third_frame = blocked.frame(heartbeat(group_id="g" * 900))
            blocked.writer.write(third_frame[:200])
            (third,) = [each for each in listener._connections if each.peer.endswith(port_of(blocked))]
            await until(lambda: third._claim.waits)
            assert await is_served(small)  # what comes in one piece takes nothing
            blocked.writer.write(third_frame[200:])
            slow.writer.write(large[0][500:])
            waiting.close()
            await slow.receive()
            await blocked.receive()
            assert not any(each._claim.size_bytes for each in listener._connections)

    run(scenario())


def test_muted_connection_claims_no_memory_for_what_it_sends_meanwhile() -> None:
    """A client that is to hold back must not keep others' requests out for so long."""

    async def scenario() -> None:
        memory = RequestMemory(1)
        admission = OPEN._replace(meter=lambda request: Metered(3_600_000))
        async with serving(HEARTBEAT_ONLY, memory=memory, admission=admission) as listener:
            muted, other = [await connect_from("127.0.0.1", listener) for _ in range(2)]
            muted.writer.write(muted.frame(heartbeat()) + muted.frame(heartbeat(group_id="g" * 900))[:200])
            await muted.receive()
            other.writer.write(other.frame(heartbeat(group_id="g" * 900))[:200])
            (connection,) = [each for each in listener._connections if each.peer.endswith(port_of(other))]
            await until(lambda: connection._claim.size_bytes > 0)

    run(scenario())


def test_who_has_not_said_who_he_is_keeps_no_memory_from_others() -> None:
    """A few strangers who begin to send and never end could shut everybody else out."""

    async def scenario() -> None:
        memory = RequestMemory(1)
        asking = Admission(Authentication(Mechanisms({}, ("PLAIN",)), principal=None))
        async with (
            serving(HEARTBEAT_ONLY, memory=memory, admission=asking) as of_strangers,
            serving(HEARTBEAT_ONLY, memory=memory) as listener,
        ):
            stranger = await connect_from("127.0.0.1", of_strangers)
            handshake = stranger.frame(SaslHandshakeRequest(mechanism="m" * 900))
            stranger.writer.write(handshake[:500])
            await until(lambda: any(each._frame_bytes for each in of_strangers._connections))
            other = await connect_from("127.0.0.1", listener)
            frame = other.frame(heartbeat(group_id="g" * 900))
            other.writer.write(frame[:200])
            await until(lambda: any(each._claim.size_bytes for each in listener._connections))
            other.writer.write(frame[200:])
            await other.receive()
            stranger.close()

    run(scenario())


def test_client_of_ipv4_has_its_own_address_at_a_listener_of_ipv6() -> None:
    """Quotas, ACLs and logs name it so; under another name it would have no bound."""

    async def scenario() -> None:
        overrides = {"127.0.0.1": 1}
        quotas = ConnectionQuotas(ConnectionLimits(max_connections_per_ip_overrides=overrides))
        try:
            listener = await Listener.start(
                "::",
                0,
                Service(apis=HEARTBEAT_ONLY),
                ListenerIdentity(name="test"),
                ListenerBounds(quotas=quotas),
            )
        except OSError:
            pytest.skip("there is no IPv6 here")
        try:
            first, second = [await connect_from("127.0.0.1", listener) for _ in range(2)]
            assert await is_served(first)
            assert not await is_served(second)
            (connection,) = listener._connections
            assert connection.peer == f"127.0.0.1{port_of(first)}"
        finally:
            await listener.close()

    run(scenario())


def port_of(client: RawClient) -> str:
    """Return the end of what a listener calls a client's connection."""
    port: int = client.writer.get_extra_info("sockname")[1]
    return f":{port}"


def test_listeners_of_one_broker_share_their_quotas_and_the_brokers_own_is_excepted() -> None:
    """max.connections bounds the broker, but clients must not shut its followers out."""

    async def scenario() -> None:
        quotas = ConnectionQuotas(ConnectionLimits(max_connections=2))
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


def test_brokers_come_to_the_driver_when_clients_have_used_up_its_connections() -> None:
    """They come to the clients' listener. Else a cluster is lost by whoever opens enough connections."""

    async def scenario() -> None:
        quotas = ConnectionQuotas(ConnectionLimits(max_connections=1))
        async with serving(
            HEARTBEAT_ONLY,
            quotas=quotas,
            admission=CLUSTER_ADMISSION,
            cluster_connections=ClusterConnections.RESERVED,
        ) as listener:
            clients = [await RawClient.connect(listener)]
            await until(lambda: listener.connection_count == 1)
            with patch.object(reserved_connections, "MAX_WAITING", 2):
                clients += [await RawClient.connect(listener) for _ in range(2)]
                await until(lambda: listener.connection_count == 3)
                broker = await Channel.connect("127.0.0.1", listener.port, "broker", login=SECRET.login)
                assert await clients[1].closed_by_server()
                others = [await RawClient.connect(listener) for _ in range(3)]
                assert await clients[2].closed_by_server()
                assert await others[0].closed_by_server()
                assert await broker.request(heartbeat(5)) == heartbeat_response(5)
                assert listener.connection_count == 4
            broker.close()

    run(scenario())


def test_stranger_beyond_the_bound_is_closed_in_time() -> None:
    """It is taken for as long as a broker needs to log in, and no longer."""

    async def scenario() -> None:
        quotas = ConnectionQuotas(ConnectionLimits(max_connections=0))
        with patch.object(reserved_connections, "LOGIN_S", 0.05):
            async with serving(
                HEARTBEAT_ONLY, quotas=quotas, cluster_connections=ClusterConnections.RESERVED
            ) as listener:
                assert await (await RawClient.connect(listener)).closed_by_server()
                assert listener.connection_count == 0

    run(scenario())


def test_listener_of_the_inside_has_few_who_have_not_logged_in_and_none_for_long() -> None:
    """Strangers who say nothing took every connection there may be, those of clients included."""

    async def scenario() -> None:
        with (
            patch.object(reserved_connections, "MAX_WAITING", 2),
            patch.object(reserved_connections, "LOGIN_S", 0.5),
        ):
            async with serving(
                HEARTBEAT_ONLY, admission=CLUSTER_ADMISSION, cluster_connections=ClusterConnections.ONLY
            ) as listener:
                broker = await Channel.connect("127.0.0.1", listener.port, "broker", login=SECRET.login)
                assert await broker.request(heartbeat(5)) == heartbeat_response(5)
                silent = [await RawClient.connect(listener) for _ in range(3)]
                assert await silent[0].closed_by_server()
                assert listener.connection_count <= 3
                assert [await each.closed_by_server() for each in silent[1:]] == [True, True]
                assert await broker.request(heartbeat(6)) == heartbeat_response(6)
                broker.close()

    run(scenario())


def _hold_memory(listener: Listener, count: int) -> bool:
    return sum(each._claim.size_bytes > 0 for each in listener._connections) == count


def test_stranger_who_announces_what_he_never_sends_makes_way_for_who_says_who_he_is() -> None:
    """64 of them kept everybody with a long token from logging in, for as long as they liked."""

    async def scenario() -> None:
        strangers_only = Admission(Authentication(Mechanisms({}, ("PLAIN",)), principal=None))
        async with serving(HEARTBEAT_ONLY, admission=strangers_only) as listener:
            listener.unauthenticated_memory = RequestMemory(100 << 10, makes_room=True)
            silent = [await RawClient.connect(listener) for _ in range(3)]
            for held, each in zip((1, 2, 2), silent, strict=True):
                each.writer.write(struct.pack(">i", 50 << 10) + b"some")
                await until(partial(_hold_memory, listener, held))
            assert await silent[0].closed_by_server()
            client = await RawClient.connect(listener)
            long = ApiVersionsRequest(client_software_name="a" * (20 << 10), client_software_version="1")
            client.send(long)
            assert (await client.receive()).error_code is ErrorCode.none
            assert await silent[1].closed_by_server()
            silent[2].close()

    run(scenario())


def test_strangers_share_a_little_memory_and_who_waits_for_it_holds_next_to_none() -> None:
    """A thousand that announce 512 KiB each, and send most of it, would take half a GiB."""

    async def scenario() -> None:
        strangers_only = Admission(Authentication(Mechanisms({}, ("PLAIN",)), principal=None))
        async with serving(HEARTBEAT_ONLY, admission=strangers_only) as listener:
            listener.unauthenticated_memory = RequestMemory(500 << 10)
            begun = struct.pack(">i", 500 << 10) + bytes(400 << 10)
            first, *waiting = [await RawClient.connect(listener) for _ in range(4)]
            first.writer.write(begun)
            await until(lambda: any(each._received.end > 400 << 10 for each in listener._connections))
            for each in waiting:
                each.writer.write(begun)
            await until(lambda: sum(each._claim.waits for each in listener._connections) == 3)
            held = sorted(len(each._received._buffer or b"") for each in listener._connections)
            assert held[:3] == [0, 0, 0]
            another = await RawClient.connect(listener)
            another.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
            assert (await another.receive()).error_code is ErrorCode.none
            first.close()
            await until(lambda: sum(each._claim.waits for each in listener._connections) == 2)
            await until(lambda: any(each._received.end > 400 << 10 for each in listener._connections))

    run(scenario())


def test_login_in_pieces_does_not_wait_for_strangers_who_hold_all_their_memory() -> None:
    """A token of some KiB comes in pieces; a few who never end their requests could keep everybody out."""

    async def scenario() -> None:
        strangers_only = Admission(Authentication(Mechanisms({}, ("PLAIN",)), principal=None))
        async with serving(HEARTBEAT_ONLY, admission=strangers_only) as listener:
            listener.unauthenticated_memory = RequestMemory(1)
            holding, login = [await RawClient.connect(listener) for _ in range(2)]
            holding.writer.write(struct.pack(">i", 100 << 10) + bytes(200))
            await until(lambda: any(each._claim.size_bytes for each in listener._connections))
            frame = login.frame(SaslHandshakeRequest(mechanism="m" * 8_000))
            login.writer.write(frame[:4_000])
            await until(lambda: any(each._received.end == 4_000 for each in listener._connections))
            login.writer.write(frame[4_000:])
            assert (await login.receive()).error_code is ErrorCode.unsupported_sasl_mechanism

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


def test_connection_is_not_looked_at_with_those_of_all_other_addresses() -> None:
    """An IPv6 network has more addresses than a loop has time; each may connect as often as it may."""
    addresses, looks = 3_000, 0
    is_idle = SampledRate.is_idle

    def counted(rate: SampledRate, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return is_idle(rate, now_ms)

    quotas = ConnectionQuotas()
    quotas.rate_of = lambda address: 10.0
    with patch.object(SampledRate, "is_idle", counted):
        for number in range(addresses):
            assert quotas.held_back_ms(f"fd00::{number:x}", 0) == 0
    assert looks <= 2 * addresses
