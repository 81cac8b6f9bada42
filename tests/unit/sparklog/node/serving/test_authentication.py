"""Connections that say who they are, on a real listener: what is served before, what comes of failures."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.sasl_authenticate.v0.request import SaslAuthenticateRequest as OldAuthenticateRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v0.request import SaslHandshakeRequest as OldHandshakeRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from sparklog.node.acls.acl import Principal
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.calling.channel import Channel
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.security.sasl.mechanism import ServerMechanism
from sparklog.node.security.sasl.scram import (
    MIN_ITERATIONS,
    SCRAM_SHA_256,
    ScramCredential,
    ScramLogin,
    ScramVerification,
)
from sparklog.node.serving.admission import Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.machine.authenticator import Mechanisms
from sparklog.node.serving.requests import ANONYMOUS
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.application_secret import CLUSTER_ADMISSION, SECRET
from tests.unit.sparklog.node.serving.serving import Heard, RawClient, heartbeat, run, serving, until

ANN = Principal("User", "ann")
USERS = {"ann": ScramCredential.of_password(SCRAM_SHA_256, "pencil", MIN_ITERATIONS)}


def verification() -> ServerMechanism:
    return ScramVerification(SCRAM_SHA_256, USERS.get)


def login(password: str = "pencil") -> Callable[[str], ScramLogin]:
    return lambda address: ScramLogin(SCRAM_SHA_256, "ann", password)


def asking(max_reauthentication_ms: int = 0, failed_delay_ms: int = 1) -> Admission:
    """How a listener of SASL admits."""
    limits = {SCRAM_SHA_256: max_reauthentication_ms}
    mechanisms = Mechanisms({SCRAM_SHA_256: verification}, (SCRAM_SHA_256,), limits)
    return Admission(Authentication(mechanisms, principal=None, failed_delay_ms=failed_delay_ms))


@pytest.mark.parametrize("request_", [heartbeat(), SaslAuthenticateRequest(auth_bytes=b"x")])
def test_request_before_authentication_closes_the_connection_unread(request_: Any) -> None:
    """Everything but the way to a principal is for those who have one."""
    heard = Heard()

    async def scenario() -> None:
        async with serving(heard.apis, admission=asking()) as listener:
            client = await RawClient.connect(listener)
            client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
            assert (await client.receive()).error_code is ErrorCode.none
            client.send(request_)
            assert await client.closed_by_server()

    run(scenario())
    assert heard.principals == []


def test_second_api_versions_before_authentication_closes_the_connection() -> None:
    """One that was refused, for its version or its name, may be repeated: newer clients ask so (KIP-511)."""
    ask = ApiVersionsRequest(client_software_name="t", client_software_version="1")

    async def scenario() -> None:
        async with serving(Heard().apis, admission=asking()) as listener:
            client = await RawClient.connect(listener)
            client.send(ApiVersionsRequest(client_software_name="-", client_software_version="1"), ask)
            assert (await client.receive()).error_code is ErrorCode.invalid_request
            assert (await client.receive()).error_code is ErrorCode.none
            client.send(ask)
            assert await client.closed_by_server()

    run(scenario())


def test_api_versions_after_authentication_may_be_asked_for_again() -> None:
    """Java's clients ask before and after."""
    ask = ApiVersionsRequest(client_software_name="t", client_software_version="1")

    async def scenario() -> None:
        async with serving(Heard().apis, admission=asking()) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test", login=login())
            for _ in range(3):
                assert (await channel.request(ask)).error_code is ErrorCode.none
            channel.close()

    run(scenario())


def test_channel_with_the_right_password_is_its_user() -> None:
    """Both clients of ours; requests that are pipelined behind the last token are the user's."""
    heard = Heard()

    async def scenario() -> None:
        async with serving(heard.apis, admission=asking()) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test", login=login())
            await channel.request(heartbeat())
            channel.close()

            def block() -> None:
                with BlockingChannel("127.0.0.1", listener.port, "test", login=login()) as blocking:
                    blocking.request(heartbeat())

            await asyncio.to_thread(block)

    run(scenario())
    assert heard.principals == [ANN, ANN]


def test_channel_with_the_wrong_password_is_told_and_closed() -> None:
    """In Kafka's words, which do not say whether there is such a user."""

    async def scenario() -> None:
        async with serving({}, admission=asking()) as listener:
            with pytest.raises(KafkaError, match="due to invalid credentials with") as told:
                await Channel.connect("127.0.0.1", listener.port, "test", login=login("pen"))
            assert told.value.error_code is ErrorCode.sasl_authentication_failed
            await until(lambda: listener.connection_count == 0)

    run(scenario())


def test_mechanism_that_is_not_enabled_is_refused_with_those_that_are() -> None:
    """A client that is set up for another one is told what to set up."""

    async def scenario() -> None:
        async with serving({}, admission=asking()) as listener:
            client = await RawClient.connect(listener)
            client.send(SaslHandshakeRequest(mechanism="PLAIN"))
            answer = await client.receive()
            assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
            assert answer.mechanisms == (SCRAM_SHA_256,)
            assert await client.closed_by_server()

    run(scenario())


def test_failure_is_answered_later_and_nothing_behind_it_is() -> None:
    """Who guesses waits for each answer, and gains nothing by asking on before it has come."""
    heard = Heard()

    async def scenario() -> None:
        async with serving(heard.apis, admission=asking(failed_delay_ms=3_600_000)) as listener:
            client = await RawClient.connect(listener)
            client.send(SaslHandshakeRequest(mechanism=SCRAM_SHA_256))
            assert (await client.receive()).error_code is ErrorCode.none
            client.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=nobody,r=x"))
            client.send(heartbeat())
            other = await Channel.connect("127.0.0.1", listener.port, "test", login=login())
            await other.request(heartbeat())
            other.close()
            await until(lambda: listener.connection_count == 1)
            assert not client.reader._buffer  # type: ignore[attr-defined]
            client.close()

    run(scenario())
    assert heard.principals == [ANN]


def test_frame_before_authentication_is_bounded() -> None:
    """A thousand strangers that announce 100 MiB each are to cost nothing."""

    async def scenario() -> None:
        async with serving({}, admission=asking()) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(struct.pack(">i", (512 << 10) + 1))
            assert await reader.read() == b""
            channel = await Channel.connect("127.0.0.1", listener.port, "test", login=login())
            assert not channel.closed.done()
            channel.close()

    run(scenario())


def test_session_that_is_over_is_renewed_or_closed() -> None:
    """KIP-368: the connection of a user whose credentials were taken away ends within its session."""
    heard = Heard()

    async def scenario() -> None:
        async with serving(heard.apis, admission=asking(max_reauthentication_ms=1_000)) as listener:
            renewed = await Channel.connect("127.0.0.1", listener.port, "test", login=login())
            left = await Channel.connect("127.0.0.1", listener.port, "test", login=login())
            connections = list(listener._connections)
            await until(lambda: all(each.principal is None for each in connections))
            assert await renewed.authenticate(login()(renewed.peer)) == 1_000
            await renewed.request(heartbeat())
            with pytest.raises(KafkaError, match="closed the connection"):
                await left.request(heartbeat())
            renewed.close()

    run(scenario())
    assert heard.principals == [ANN]


def test_handshake_where_nobody_is_asked_is_illegal_and_leaves_all_as_it_was() -> None:
    """As in Kafka: a client that is set up for SASL is told that this listener has none."""
    heard = Heard()

    async def scenario() -> None:
        async with serving(heard.apis) as listener:
            client = await RawClient.connect(listener)
            for request in (
                SaslHandshakeRequest(mechanism=SCRAM_SHA_256),
                SaslAuthenticateRequest(auth_bytes=b"x"),
            ):
                client.send(request)
                assert (await client.receive()).error_code is ErrorCode.illegal_sasl_state
            client.send(heartbeat())
            await client.receive()

    run(scenario())
    assert heard.principals == [ANONYMOUS]


def test_those_inside_are_known_on_any_listener() -> None:
    """Brokers meet on clients' listeners, too."""
    heard = Heard()

    async def scenario() -> None:
        async with serving(heard.apis, admission=CLUSTER_ADMISSION) as listener:
            anybody = await Channel.connect("127.0.0.1", listener.port, "test")
            member = await Channel.connect("127.0.0.1", listener.port, "test", login=SECRET.login)
            for channel in (anybody, member):
                await channel.request(heartbeat())
                channel.close()

    run(scenario())
    assert heard.principals == [ANONYMOUS, CLUSTER_PRINCIPAL]
    assert heard.principals[1] is CLUSTER_PRINCIPAL


def test_bare_tokens_of_the_oldest_handshake_are_served() -> None:
    """A token without a header, shorter than any header; a refusal of one is only seen by the end."""
    heard = Heard()

    async def exchange(listener: Any, password: str) -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)

        async def ask(token: bytes) -> bytes:
            writer.write(struct.pack(">i", len(token)) + token)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            return await reader.readexactly(size)

        client = RawClient(reader, writer)
        client.send(OldHandshakeRequest(mechanism=SCRAM_SHA_256))
        assert (await client.receive()).error_code is ErrorCode.none
        scram = login(password)("")
        final = scram.respond(await ask(scram.first()))
        assert final is not None
        assert scram.respond(await ask(final)) is None
        return client

    async def scenario() -> None:
        async with serving(heard.apis, admission=asking()) as listener:
            client = await exchange(listener, "pencil")
            client.send(heartbeat())
            await client.receive()
            client.send(OldAuthenticateRequest(auth_bytes=b"x"))
            assert (await client.receive()).error_code is ErrorCode.illegal_sasl_state
            with pytest.raises(asyncio.IncompleteReadError):
                await exchange(listener, "pen")

    run(scenario())
    assert heard.principals == [ANN]


def test_session_is_not_prolonged_by_what_renews_nothing() -> None:
    """A user whose credentials were taken away could stay for as long as he said anything of the kind."""

    async def scenario() -> None:
        async with serving({}, admission=asking(max_reauthentication_ms=300)) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test", login=login())
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            with pytest.raises(KafkaError, match="closed the connection"):
                while loop.time() - began_s < 2:
                    await channel.request(SaslAuthenticateRequest(auth_bytes=b"junk"))

    run(scenario())
