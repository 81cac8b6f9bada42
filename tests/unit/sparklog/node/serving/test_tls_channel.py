"""Both clients over TLS: what they send and receive, and whom they refuse, by name and at once."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.calling.channel import Channel
from sparklog.node.security.tls.contexts import client_context
from sparklog.node.security.tls.errors import TlsHandshakeError
from sparklog.node.security.tls.settings import StoreSettings, TlsSettings
from sparklog.node.serving.requests import Api
from sparklog.node.serving.tls.tls_stream import ClientTls
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import KafkaError
from tests.certificates import Authority
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    SMALL_AND_LARGE,
    BytesRegion,
    fetch_request,
    fetch_response,
    heartbeat,
    heartbeat_response,
    large_request,
    large_response,
    run,
    serving,
)
from tests.unit.sparklog.node.serving.tls_serving import server_tls

AUTHORITY = Authority()
SERVER = AUTHORITY.certify(hosts=["localhost"])
TRUSTING = TlsSettings(truststore=StoreSettings(type="PEM", certificates=AUTHORITY.pem))
TRUSTING_ANOTHER = TlsSettings(truststore=StoreSettings(type="PEM", certificates=Authority().pem))

AskAll = Callable[[str, int, TlsSettings, list[Any]], Coroutine[Any, Any, list[Any]]]


async def ask_channel(host: str, port: int, tls: TlsSettings, requests: list[Any]) -> list[Any]:
    channel = await Channel.connect(host, port, "test", tls=ClientTls(client_context(tls)))
    try:
        return await asyncio.gather(*(channel.request(each) for each in requests))
    finally:
        channel.close()


async def ask_blocking_channel(host: str, port: int, tls: TlsSettings, requests: list[Any]) -> list[Any]:
    def ask() -> list[Any]:
        with BlockingChannel(host, port, "test", tls=tls) as channel:
            for request in requests:
                channel.send(request)
            return [channel.receive() for _ in requests]

    return await asyncio.to_thread(ask)


BOTH = pytest.mark.parametrize("ask", [ask_channel, ask_blocking_channel], ids=["Channel", "BlockingChannel"])


@BOTH
def test_requests_and_answers_of_any_length_pass_through_tls(ask: AskAll) -> None:
    """Answers that share a record, and one of many records, come whole and in order."""
    content = bytes(range(253)) * 9_000
    fetch = Api(12, 12, lambda request: fetch_response(BytesRegion(content)))
    apis = {**SMALL_AND_LARGE, ApiKey.FETCH: fetch}
    requests = [
        heartbeat(1),
        large_request(2, b"g" * 500_000),
        fetch_request(),
        *map(heartbeat, range(3, 90)),
    ]

    async def scenario() -> None:
        async with serving(apis, tls=server_tls(SERVER)) as listener:
            first, second, fetched, *others = await ask("localhost", listener.port, TRUSTING, requests)
            assert [first, second] == [heartbeat_response(1), large_response(2)]
            assert bytes(fetched.responses[0].partitions[0].records) == content
            assert others == [heartbeat_response(each) for each in range(3, 90)]

    run(scenario())


@BOTH
@pytest.mark.parametrize(
    ("host", "tls", "said"),
    [
        ("127.0.0.1", TRUSTING, "certificate is not accepted: IP address mismatch"),
        (
            "localhost",
            TlsSettings(truststore=StoreSettings(type="PEM", certificates=Authority().pem)),
            "issuer",
        ),
        ("localhost", TlsSettings(), "certificate is not accepted"),
    ],
)
def test_server_that_is_not_trusted_is_refused_for_good(
    ask: AskAll, host: str, tls: TlsSettings, said: str
) -> None:
    """Somebody between the two, or a wrong trust store: trying for a minute would help in neither case."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, tls=server_tls(SERVER)) as listener:
            with pytest.raises(TlsHandshakeError, match=said) as caught:
                await ask(host, listener.port, tls, [heartbeat(1)])
            assert not caught.value.retriable
            if host == "127.0.0.1":
                unchecked = replace(tls, endpoint_identification_algorithm="")
                assert await ask(host, listener.port, unchecked, [heartbeat(1)]) == [heartbeat_response(1)]

    run(scenario())


@BOTH
def test_expired_certificate_is_refused_for_good(ask: AskAll) -> None:
    """It says so itself; whoever has to renew it is told what it is."""

    async def scenario() -> None:
        tls = server_tls(AUTHORITY.certify(expired=True))
        async with serving(HEARTBEAT_ONLY, tls=tls) as listener:
            with pytest.raises(TlsHandshakeError, match="certificate has expired"):
                await ask("localhost", listener.port, TRUSTING, [heartbeat(1)])

    run(scenario())


@BOTH
def test_plain_listener_is_told_from_a_network_that_fails(ask: AskAll) -> None:
    """It closes the connection at once; the message names what it may be."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            with pytest.raises(KafkaError, match="does it speak TLS"):
                await ask("localhost", listener.port, TRUSTING, [heartbeat(1)])

    run(scenario())


@BOTH
def test_client_without_the_certificate_that_is_asked_for_is_refused(ask: AskAll) -> None:
    """TLS 1.3 tells so only after the handshake, in place of the first answer."""

    async def scenario() -> None:
        tls = server_tls(SERVER, ssl_client_auth="required", ssl_truststore_certificates=AUTHORITY.pem)
        async with serving(HEARTBEAT_ONLY, tls=tls) as listener:
            with pytest.raises(KafkaError):
                await ask("localhost", listener.port, TRUSTING, [heartbeat(1)])
            ann = AUTHORITY.certify("ann")
            store = StoreSettings(type="PEM", key=ann.key_pem, certificates=ann.certificate_pem)
            answers = await ask("localhost", listener.port, replace(TRUSTING, keystore=store), [heartbeat(1)])
            assert answers == [heartbeat_response(1)]

    run(scenario())


def test_plain_client_of_kafkas_listener_of_tls_is_told_so_for_good() -> None:
    """Java answers plain bytes with an alert, whose first bytes say that 352 MB follow."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(b"\x15\3\3\0\2\2\x50")

        answering = threading.Thread(target=answer)
        answering.start()
        with (
            BlockingChannel("127.0.0.1", server.getsockname()[1], "test") as channel,
            pytest.raises(TlsHandshakeError, match="it speaks TLS, and this client plain text"),
        ):
            channel.request(heartbeat(1))
        answering.join()
