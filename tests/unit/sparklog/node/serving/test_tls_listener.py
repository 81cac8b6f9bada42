"""A listener of TLS: what it serves, whom it lets in, and what those cost who do not come in."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.node.acls.acl import Principal
from sparklog.node.calling.channel import Channel
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.serving.listener import Listener
from sparklog.node.serving.requests import ANONYMOUS, Api, Request
from sparklog.node.serving.tls import tls_handshakes
from sparklog.node.serving.tls.tls_stream import ClientTls
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import KafkaError
from tests.certificates import Authority, Certified
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    SMALL_AND_LARGE,
    BytesRegion,
    RawClient,
    answer_heartbeat,
    fetch_request,
    fetch_response,
    heartbeat,
    heartbeat_response,
    large_request,
    large_response,
    run,
    serving,
    until,
)
from tests.unit.sparklog.node.serving.test_authentication import asking, login
from tests.unit.sparklog.node.serving.tls_serving import client_of, server_tls

AUTHORITY = Authority()
SERVER = AUTHORITY.certify()


def showing(context: ssl.SSLContext, certified: Certified, directory: Any) -> ssl.SSLContext:
    """Return the context, which shows a certificate of its own."""
    path = directory / "client.pem"
    path.write_text(certified.key_pem + certified.certificate_pem)
    context.load_cert_chain(path)
    return context


def failures(listener: Listener) -> int:
    assert listener.handshakes is not None
    return listener.handshakes.failed_count


async def is_closed(client: RawClient) -> bool:
    """Whether the server ends the connection, whatever it says before."""
    try:
        while await client.reader.read(1000):
            pass
    except OSError:
        pass
    return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_and_file_regions_pass_through_tls_whole_and_in_order(version: ssl.TLSVersion) -> None:
    """Answers of many slices, requests that come in many records, and both amid small ones."""
    content = bytes(range(251)) * 9_973
    regions = fetch_response(BytesRegion(content), BytesRegion(content, position=5, length=70_000))
    apis = {**SMALL_AND_LARGE, ApiKey.FETCH: Api(12, 12, lambda request: regions)}

    async def scenario() -> None:
        async with serving(apis, tls=server_tls(SERVER)) as listener:
            context = client_of(AUTHORITY)
            context.maximum_version = context.minimum_version = version
            client = await RawClient.connect(listener, tls=context)
            large = large_request(2, b"g" * 1_000_000)
            client.send(heartbeat(1), fetch_request(), large, *(heartbeat(each) for each in range(3, 2_000)))
            assert await client.receive() == heartbeat_response(1)
            first, second = (await client.receive()).responses[0].partitions
            assert bytes(first.records) == content
            assert bytes(second.records) == content[5:70_005]
            assert await client.receive() == large_response(2)
            for each in range(3, 2_000):
                assert await client.receive() == heartbeat_response(each)
            client.close()
            await until(lambda: listener.connection_count == 0)
            assert failures(listener) == 0

    run(scenario())


def test_frames_that_lie_across_the_ends_of_buffers_are_received_whole() -> None:
    """What is there of a frame is moved to the beginning of its buffer; a producer sends nothing but such."""

    async def scenario() -> None:
        async with serving(SMALL_AND_LARGE, tls=server_tls(SERVER)) as listener:
            client = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            sizes = range(50_000, 110_000, 997)
            client.send(*(large_request(size, b"g" * size) for size in sizes))
            for size in sizes:
                assert await client.receive() == large_response(size)

    run(scenario())


def test_reader_that_stops_reading_holds_nobody_up_and_gets_everything_later() -> None:
    """Back pressure is that of plain connections: what is not taken is not encrypted either."""
    content = bytes(range(256)) * 40_000
    apis = {**HEARTBEAT_ONLY, ApiKey.FETCH: Api(12, 12, lambda request: fetch_response(BytesRegion(content)))}

    async def scenario() -> None:
        async with serving(apis, tls=server_tls(SERVER)) as listener:
            slow = await RawClient.connect(listener, tls=client_of(AUTHORITY), receive_buffer_bytes=10_000)
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slow.send(fetch_request(), heartbeat(1))
            other = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            for each in range(50):
                other.send(heartbeat(each))
                assert await other.receive() == heartbeat_response(each)
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            (partition,) = (await slow.receive()).responses[0].partitions
            assert bytes(partition.records) == content
            assert await slow.receive() == heartbeat_response(1)

    run(scenario())


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\x19\0\x12\0\4\0\0\0\1\0\4test\0\5java\00510\0",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\3\1\0\5hello",
        b"\x80\x2e\1\0\2" + bytes(60),
    ],
)
def test_listener_of_tls_closes_at_once_for_what_is_no_handshake(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that is set up for another protocol has to be told now, by name, and not after a time-out."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            client = await RawClient.connect(listener)
            client.writer.write(sent)
            assert await is_closed(client)
            assert failures(listener) == 1
            assert listener.connection_count == 0

    with caplog.at_level(logging.WARNING):
        run(scenario())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("test: TLS handshake of 127.0.0.1:")


def test_plain_listener_closes_at_once_for_a_handshake(caplog: pytest.LogCaptureFixture) -> None:
    """Its first bytes say that a frame of 369 MB follows: not a byte of that is waited for."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await RawClient.connect(listener, tls=client_of(AUTHORITY))
            await until(lambda: listener.connection_count == 0)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "it begins with a TLS handshake" in caplog.text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("asked", "shown", "expected"),
    [
        ("none", None, ANONYMOUS),
        ("none", "good", ANONYMOUS),
        ("requested", None, ANONYMOUS),
        ("requested", "good", Principal("User", "CN=ann")),
        ("requested", "expired", None),
        ("requested", "stranger", None),
        ("required", None, None),
        ("required", "good", Principal("User", "CN=ann")),
        ("required", "expired", None),
        ("required", "stranger", None),
    ],
)
def test_client_is_who_its_certificate_says_or_stays_outside(
    asked: str, shown: str | None, expected: Principal | None, version: ssl.TLSVersion, tmp_path: Any
) -> None:
    """ssl.client.auth: a certificate that is shown must be good even where none is required."""
    certificates: dict[str, Callable[[], Certified]] = {
        "good": lambda: AUTHORITY.certify("ann"),
        "expired": lambda: AUTHORITY.certify("ann", expired=True),
        "stranger": lambda: Authority().certify("ann"),
    }
    seen = []

    def answer(request: Request) -> Any:
        seen.append(request.principal)
        return answer_heartbeat(request)

    async def scenario() -> None:
        tls = server_tls(SERVER, ssl_client_auth=asked, ssl_truststore_certificates=AUTHORITY.pem)
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, answer)}, tls=tls) as listener:
            context = client_of(AUTHORITY)
            context.maximum_version = context.minimum_version = version
            if shown is not None:
                showing(context, certificates[shown](), tmp_path)
            try:
                client = await RawClient.connect(listener, tls=context)
                client.send(heartbeat(1))
                assert await client.receive() == heartbeat_response(1)
            except (OSError, asyncio.IncompleteReadError):
                await until(lambda: failures(listener) == 1)
                await until(lambda: listener.connection_count == 0)

    run(scenario())
    assert seen == ([] if expected is None else [expected])


@pytest.mark.parametrize("is_set_alone", [True, False])
def test_listener_of_sasl_asks_for_certificates_only_if_that_is_set_for_it_alone(
    is_set_alone: bool, tmp_path: Any
) -> None:
    """As in Kafka, where a value for all listeners is for those of SSL; and whoever says by SASL who he is
    needs no rule that his certificate is for."""
    tls = server_tls(
        SERVER,
        SecurityProtocol.SASL_SSL,
        ssl_truststore_certificates=AUTHORITY.pem,
        ssl_principal_mapping_rules="RULE:^CN=bob$/bob/",
        **{"listener_name_clients_ssl_client_auth" if is_set_alone else "ssl_client_auth": "required"},
    )
    context = client_of(AUTHORITY)

    async def said_who(listener: Listener) -> str:
        channel = await Channel.connect(
            "127.0.0.1", listener.port, "test", tls=ClientTls(context, "localhost"), login=login()
        )
        (connection,) = listener._connections
        channel.close()
        return str(connection.principal)

    async def scenario() -> None:
        async with serving({}, tls=tls, admission=asking()) as listener:
            if is_set_alone:
                with pytest.raises(KafkaError, match=r"TLS|connection"):
                    await said_who(listener)
                await until(lambda: not listener._connections)
                showing(context, AUTHORITY.certify("ann"), tmp_path)
            assert await said_who(listener) == "User:ann"

    run(scenario())


def test_client_that_resumes_a_session_is_the_same_as_before(tmp_path: Any) -> None:
    """A resumed session shows no certificate; whoever owned it must not become anybody else, or nobody."""
    seen = []

    def answer(request: Request) -> Any:
        seen.append(str(request.principal))
        return answer_heartbeat(request)

    def ask(port: int, session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession]:
        plain = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as client:
            client.sendall(b"\0\0\0\x12\0\x0c\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0")
            client.recv(100)
            assert client.session is not None
            return bool(client.session_reused), client.session

    context = showing(client_of(AUTHORITY), AUTHORITY.certify("ann"), tmp_path)

    async def scenario() -> None:
        tls = server_tls(SERVER, ssl_client_auth="required", ssl_truststore_certificates=AUTHORITY.pem)
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, answer)}, tls=tls) as listener:
            reused, session = await asyncio.to_thread(ask, listener.port, None)
            assert not reused
            reused, _ = await asyncio.to_thread(ask, listener.port, session)
            assert reused

    run(scenario())
    assert seen == ["User:CN=ann"] * 2


def test_handshake_that_goes_nowhere_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects and says nothing, or begins and stops, costs a connection for seconds only."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            served = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            monkeypatch.setattr(tls_handshakes, "HANDSHAKE_TIMEOUT_S", 0.1)
            silent = await RawClient.connect(listener)
            begun = await RawClient.connect(listener)
            begun.writer.write(b"\x16\3\1\2\0\1\0\1\xfc\3\3")
            assert await is_closed(silent)
            assert await is_closed(begun)
            assert failures(listener) == 2
            served.send(heartbeat(1))
            assert await served.receive() == heartbeat_response(1)

    run(scenario())


def test_who_looks_whether_anybody_is_here_has_not_failed_at_a_handshake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The controller does, of brokers that it suspects; it is no attack that anybody has to look into."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            looking = await RawClient.connect(listener)
            await until(lambda: listener.connection_count == 1)
            looking.close()
            await until(lambda: listener.connection_count == 0)
            assert failures(listener) == 0
            begun = await RawClient.connect(listener)
            begun.writer.write(b"\x16\3\1")
            await begun.writer.drain()
            begun.close()
            await until(lambda: failures(listener) == 1)

    run(scenario())
    assert len([each for each in caplog.records if "TLS handshake" in each.message]) == 1


def test_handshakes_beyond_the_bound_end_the_oldest_and_let_newer_ones_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand half-open ones must not keep out a client that means it."""
    monkeypatch.setattr(tls_handshakes, "MAX_HANDSHAKES", 2)

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            half_open = [await RawClient.connect(listener) for _ in range(2)]
            await until(lambda: listener.connection_count == 2)
            client = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            client.send(heartbeat(1))
            assert await client.receive() == heartbeat_response(1)
            assert await is_closed(half_open[0])
            assert failures(listener) == 1
            assert listener.connection_count == 2

    run(scenario())


def test_listener_closes_amid_handshakes_without_waiting_for_them() -> None:
    """A step that another thread takes has the stream for itself; closing must not touch it."""

    async def scenario() -> None:
        for _ in range(10):
            async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
                connecting = [
                    asyncio.ensure_future(RawClient.connect(listener, tls=client_of(AUTHORITY)))
                    for _ in range(4)
                ]
                await until(lambda: listener.accepted_count == 4)
            await asyncio.gather(*connecting, return_exceptions=True)

    run(scenario())


def test_replaced_certificate_is_shown_to_new_connections_and_old_ones_go_on() -> None:
    """Certificates live for weeks or days; brokers are not started again for them."""

    def common_name(client: RawClient) -> str:
        certificate: Any = client.writer.get_extra_info("peercert")
        return str(dict(part[0] for part in certificate["subject"])["commonName"])

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            assert listener.handshakes is not None
            old = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            listener.handshakes.tls = server_tls(AUTHORITY.certify("the next one"))
            new = await RawClient.connect(listener, tls=client_of(AUTHORITY))
            assert (common_name(old), common_name(new)) == ("localhost", "the next one")
            for client in (old, new):
                client.send(heartbeat(1))
                assert await client.receive() == heartbeat_response(1)

    run(scenario())
