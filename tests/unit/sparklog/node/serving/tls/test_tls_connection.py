"""What one connection makes of clients that keep to the letter of the protocol and not to its sense."""

import asyncio
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from sparklog.node.config import BrokerConfig
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.serving.listener import Listener
from sparklog.node.serving.requests import Api, Request
from sparklog.node.serving.tls import tls_connection, tls_handshakes
from sparklog.node.serving.tls.tls_stream import RECORDS_AT_ONCE, SLICE_BYTES, TlsStream
from sparklog.node.serving.turns import FairQueue
from sparklog.protocol.codec.apis import ApiKey
from tests.application_secret import SECRET
from tests.certificates import Authority
from tests.key_updates import ClientRecords
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    RawClient,
    answer_heartbeat,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)
from tests.unit.sparklog.node.serving.tls_serving import client_of, server_tls

AUTHORITY = Authority()
SERVER = AUTHORITY.certify()
RECORD_OVERHEAD_BYTES = 22
"""Of a record of TLS 1.3: its header, its type, its tag."""


class TlsByHand:
    """A client that says what is sent when; nothing of it leaves without being asked to."""

    def __init__(self, connected: socket.socket, stream: TlsStream) -> None:
        self.connected = connected
        self.stream = stream

    @classmethod
    async def connect(cls, listener: Listener, key_log: Path | None = None) -> "TlsByHand":
        loop = asyncio.get_running_loop()
        connected = socket.create_connection(("127.0.0.1", listener.port))
        connected.setblocking(False)
        context = client_of(AUTHORITY)
        if key_log is not None:
            context.keylog_filename = str(key_log)
        stream = TlsStream(context, server_side=False, server_hostname="localhost")
        while not stream.handshake():
            await loop.sock_sendall(connected, stream.take())
            stream.feed(await loop.sock_recv(connected, SLICE_BYTES))
        await loop.sock_sendall(connected, stream.take())
        handshakes = listener.handshakes
        assert handshakes is not None
        await until(lambda: handshakes.completed_count == 1)
        return cls(connected, stream)

    def encrypted(self, plain: bytes) -> bytes:
        self.stream.encrypt(memoryview(plain))
        return self.stream.take()

    def end(self) -> bytes:
        """Return what says that nothing follows."""
        self.stream.end()
        return self.stream.take()


def frames(*entities: Any) -> bytes:
    client = RawClient.__new__(RawClient)
    RawClient.__init__(client, asyncio.StreamReader(), None)  # type: ignore[arg-type]
    return b"".join(client.frame(entity) for entity in entities)


def test_client_that_sends_on_after_its_end_is_closed_and_nothing_of_it_is_kept() -> None:
    """OpenSSL reads nothing more then: what is fed to it stays, and was looked at again in every turn."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            client = await TlsByHand.connect(listener)
            with client.connected:
                client.connected.send(client.end() + bytes(2 * SLICE_BYTES))
                await until(lambda: listener.connection_count == 0)

    run(scenario())


def test_every_request_before_the_end_is_handled() -> None:
    """As of a plain connection: a producer of acks=0 sends, ends, and has been promised as much."""
    handled = []

    def answer(request: Request) -> Any:
        handled.append(request.body.generation_id)
        return answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, answer)}, tls=server_tls(SERVER)) as listener:
            client = await TlsByHand.connect(listener)
            with client.connected:
                sent = frames(*(heartbeat(each) for each in range(300)))
                client.connected.send(client.encrypted(sent) + client.end())
                await until(lambda: listener.connection_count == 0)

    run(scenario())
    assert handled == list(range(300))


def test_request_that_fills_a_slice_and_is_followed_by_nothing_is_handled() -> None:
    """The end is found in the same turn in which the last of it was decrypted."""
    handled = []

    def answer(request: Request) -> Any:
        handled.append(request.body.generation_id)
        return answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, answer)}, tls=server_tls(SERVER)) as listener:
            client = await TlsByHand.connect(listener)
            with client.connected:
                plain_bytes = SLICE_BYTES - 2 * RECORD_OVERHEAD_BYTES
                short_by = plain_bytes - len(frames(heartbeat(7, group_id="g" * 20_000)))
                sent = client.encrypted(frames(heartbeat(7, group_id="g" * (20_000 + short_by))))
                assert len(sent) == SLICE_BYTES
                client.connected.send(sent)
                client.connected.shutdown(socket.SHUT_WR)
                await until(lambda: listener.connection_count == 0)

    run(scenario())
    assert handled == [7]


def test_handshake_that_fails_after_it_was_given_up_is_of_no_interest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody asks any more why; asyncio would log it as an error of ours, each time."""
    monkeypatch.setattr(tls_handshakes, "HANDSHAKE_TIMEOUT_S", 0.01)
    monkeypatch.setattr(tls_handshakes, "_THREADS", 1)
    reported: list[dict[str, Any]] = []
    may_fail = threading.Event()

    def refuse(tls: ssl.SSLObject, name: str, context: ssl.SSLContext) -> int:
        may_fail.wait(10)
        return int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: reported.append(what))
        tls = server_tls(SERVER)
        tls.context.sni_callback = refuse
        async with serving(HEARTBEAT_ONLY, tls=tls) as listener:
            stream = TlsStream(client_of(AUTHORITY), server_side=False, server_hostname="localhost")
            stream.handshake()
            with socket.create_connection(("127.0.0.1", listener.port)) as connected:
                connected.send(stream.take())
                await until(lambda: listener.accepted_count == 1 and listener.connection_count == 0)
                may_fail.set()
                # The one thread takes steps in their order: this one's after that.
                monkeypatch.setattr(tls_handshakes, "HANDSHAKE_TIMEOUT_S", 10.0)
                with pytest.raises(ssl.SSLError):
                    await RawClient.connect(listener, tls=client_of(AUTHORITY))

    run(scenario())
    assert reported == []


def test_steps_of_handshakes_that_were_given_up_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens connections faster than they are signed for, and leaves, keeps nobody waiting."""
    monkeypatch.setattr(tls_handshakes, "MAX_HANDSHAKES", 2)
    monkeypatch.setattr(tls_handshakes, "_THREADS", 1)
    may_go_on = threading.Event()
    taken: list[str] = []

    def wait(tls: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:
        taken.append(name)
        may_go_on.wait(10)

    async def scenario() -> None:
        tls = server_tls(SERVER)
        tls.context.sni_callback = wait
        async with serving(HEARTBEAT_ONLY, tls=tls) as listener:
            handshakes, sockets = listener.handshakes, []
            assert handshakes is not None
            for number in range(20):
                stream = TlsStream(client_of(AUTHORITY), server_side=False, server_hostname="localhost")
                stream.handshake()
                sockets.append(socket.create_connection(("127.0.0.1", listener.port)))
                sockets[-1].send(stream.take())
                await until(lambda begun=number + 1: listener.accepted_count == begun)  # type: ignore[misc]
            await until(lambda: handshakes.failed_count == 18)
            for connected in sockets:
                connected.close()
            may_go_on.set()
            honest = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            honest.writer.close()

    run(scenario())
    assert len(taken) <= 4


def test_brokers_listener_that_requires_certificates_lets_nobody_in_without_one() -> None:
    """Without a key store it shows the certificate of the inside, and still asks everybody for one."""
    keys = {"listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required"}
    tls = listener_tls(BrokerConfig.from_mapping(keys), "SSL", SecurityProtocol.SSL, SECRET)
    assert tls is not None and tls.context.verify_mode is ssl.CERT_REQUIRED


def test_records_that_bring_nothing_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """A slice may be of 1,200 that ask for new keys: who sends them is worked for as long as others are."""
    key_log = tmp_path / "keys"
    context = client_of(AUTHORITY)
    context.keylog_filename = str(key_log)
    server = TlsStream(server_tls(SERVER).context, server_side=True)
    stream = TlsStream(context, server_side=False, server_hostname="localhost")
    while not stream.handshake():
        server.feed(stream.take())
        server.handshake()
        stream.feed(server.take())
    server.feed(stream.take())
    assert server.handshake()
    records = ClientRecords(key_log)
    flood = b"".join(records.key_update() for _ in range(3 * RECORDS_AT_ONCE)) + records.data(b"data")
    room = memoryview(bytearray(100))
    server.feed(flood[:1001])
    server.feed(flood[1001:])
    for _ in range(3):
        assert server.read_into(room, 0.0) == 0
        assert server.has_more
    assert server.read_into(room, 0.0) == 4
    assert bytes(room[:4]) == b"data"
    assert not server.has_more


def test_flood_of_key_updates_is_stood_and_what_follows_is_answered(tmp_path: Path) -> None:
    """However records come in pieces, none is lost; and others are answered in between."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            client = await TlsByHand.connect(listener, tmp_path / "keys")
            records = ClientRecords(tmp_path / "keys")
            flood = b"".join(records.key_update() for _ in range(4000))
            sending = asyncio.create_task(
                asyncio.get_running_loop().sock_sendall(
                    client.connected, flood + records.data(frames(heartbeat(7)))
                )
            )
            other = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            other.send(heartbeat(1))
            assert await other.receive() == heartbeat_response(1)
            await sending
            answered = 0
            while not answered:  # tickets come first
                client.stream.feed(await asyncio.get_running_loop().sock_recv(client.connected, 4096))
                answered = client.stream.read_into(memoryview(bytearray(100)))
            client.connected.close()

    run(scenario())


@pytest.mark.interpreted
def test_time_that_decrypting_takes_is_the_connections_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever sends what is dear to decrypt has more of the loop than others."""
    monkeypatch.setattr(tls_connection, "NOTED_WORK_S", -1.0)
    spent: list[float] = []
    monkeypatch.setattr(FairQueue, "spent", lambda self, worked_s: spent.append(worked_s))

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            client = await TlsByHand.connect(listener)
            spent.clear()
            await asyncio.get_running_loop().sock_sendall(client.connected, client.encrypted(b"\0"))
            await until(lambda: bool(spent))
            client.connected.close()

    run(scenario())
    assert all(worked_s > 0 for worked_s in spent)
