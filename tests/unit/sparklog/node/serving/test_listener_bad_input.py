"""No frame crashes the listener, allocates without bound, or disturbs another connection."""

import asyncio
import logging
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.metadata.v12.request import MetadataRequest

from sparklog.node.serving.requests import Api
from sparklog.node.serving.socket_settings import SocketSettings
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoder import encode_varint
from tests.examples import examples
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    RawClient,
    answer_heartbeat,
    answer_large,
    heartbeat,
    large_request,
    resident_bytes,
    run,
    serving,
    until,
)


def frame(content: bytes, *, claimed_bytes: int | None = None) -> bytes:
    return struct.pack(">i", len(content) if claimed_bytes is None else claimed_bytes) + content


def header(api_key: int, api_version: int, client_id: bytes = b"\0\2me", tags: bytes = b"") -> bytes:
    return struct.pack(">hhi", api_key, api_version, 0) + client_id + tags


IMPOSSIBLE_ARRAY = header(3, 12, tags=b"\0") + encode_varint(2**31 - 1) + bytes(30)

BAD_FRAMES = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS client hello": bytes.fromhex("1603010200010001fc0303") + bytes(64),
    "a negative length": frame(b"", claimed_bytes=-1),
    "a length of zero": frame(b""),
    "a header cut off": frame(b"\0\x03\0\x0c"),
    "a length beyond the limit": frame(b"x" * 100, claimed_bytes=2**31 - 1),
    "an unknown API key": frame(header(9999, 0) + bytes(10)),
    "a negative API key": frame(header(-1, 0) + bytes(10)),
    "an API that is not served": frame(header(1, 12) + bytes(10)),
    "an unknown version": frame(header(12, 77) + bytes(10)),
    "a client id longer than the frame": frame(header(12, 0, client_id=b"\x7f\xff") + bytes(10)),
    "a client id that is no text": frame(header(12, 0, client_id=b"\0\2\xff\xfe") + bytes(10)),
    "header tags longer than the frame": frame(header(12, 4, tags=b"\x01\x05\x7f") + bytes(10)),
    "an impossible array": frame(IMPOSSIBLE_ARRAY),
    "a body cut off": frame(header(12, 4, tags=b"\0") + b"\x05ab"),
    "a string that is no text": frame(header(12, 4, tags=b"\0") + b"\x03\xff\xfe\0\0\0\0\x02m\0\0"),
}

APIS = HEARTBEAT_ONLY | {ApiKey.METADATA: Api(0, 13, answer_heartbeat)}


@pytest.mark.parametrize("negotiated", [False, True], ids=["before ApiVersions", "after ApiVersions"])
@pytest.mark.parametrize("what", BAD_FRAMES)
def test_bad_frame_closes_its_connection_with_a_reason_in_the_log(
    what: str, negotiated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The sender hears of it, the operator can read why, and nobody else notices."""

    async def scenario() -> None:
        async with serving(APIS) as listener:
            bystander, sender = await RawClient.connect(listener), await RawClient.connect(listener)
            if negotiated:
                sender.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
                await sender.receive()
            sender.writer.write(BAD_FRAMES[what])
            assert await sender.closed_by_server()
            reasons = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            assert [
                reason.startswith("test: closing the connection of 127.0.0.1:") for reason in reasons
            ] == [True]
            bystander.send(heartbeat(1))
            await bystander.receive()

    with caplog.at_level(logging.INFO):
        run(scenario())


def test_requests_before_a_bad_frame_in_the_same_packet_are_handled() -> None:
    """What was well-formed was asked for; only the connection's rest is lost."""
    handled: list[int] = []

    def handler(request: Any) -> Any:
        handled.append(request.body.generation_id)
        return answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.writer.write(client.frame(heartbeat(5)) + BAD_FRAMES["an unknown API key"])
            await client.closed_by_server()
            assert handled == [5]

    run(scenario())


def test_connection_that_ends_in_the_middle_of_a_frame_is_forgotten() -> None:
    """Clients are killed at any byte."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            client = await RawClient.connect(listener)
            client.writer.write(client.frame(heartbeat())[:-3])
            await client.writer.drain()
            await until(lambda: listener.connection_count == 1)
            client.close()
            await until(lambda: listener.connection_count == 0)

    run(scenario())


def test_memory_follows_what_was_received_not_what_a_frame_claims() -> None:
    """A hundred connections that claim 100 MB each and send little must cost little."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            before_bytes = resident_bytes()
            clients: list[RawClient] = []
            for _ in range(100):
                client = await RawClient.connect(listener)
                client.writer.write(frame(header(12, 4), claimed_bytes=100_000_000) + bytes(1000))
                await client.writer.drain()
                clients.append(client)
            await until(lambda: listener.connection_count == 100)
            await asyncio.sleep(0.05)
            assert resident_bytes() - before_bytes < 50_000_000
            for client in clients:
                client.close()
            await until(lambda: listener.connection_count == 0)

    run(scenario())


def test_frame_far_larger_than_the_first_buffer_arrives_whole() -> None:
    """Buffers grow by doubling; nothing may be lost or moved wrongly on the way."""
    seen: list[tuple[int, int]] = []

    def handler(request: Any) -> Any:
        seen.append((len(request.body.metrics), hash(request.body.metrics)))
        return answer_large(request)

    async def scenario() -> None:
        settings = SocketSettings(request_max_bytes=8_000_000)
        async with serving({ApiKey.PUSH_TELEMETRY: Api(0, 0, handler)}, settings=settings) as listener:
            client = await RawClient.connect(listener)
            contents = [bytes((i * step) % 251 for i in range(size)) for size, step in SIZES]
            client.send(*(large_request(0, content) for content in contents))
            for _ in contents:
                await client.receive()
            assert seen == [(len(content), hash(content)) for content in contents]

    run(scenario())


SIZES = [(3, 1), (300_000, 3), (17_000, 5), (1_500_000, 7), (250_000, 9), (262_100, 11), (5, 1), (16_384, 3)]


@examples(30)
@given(garbage=st.binary(min_size=1, max_size=400), framed=st.booleans(), generation=st.integers(0, 1000))
def test_garbage_never_stops_the_listener(garbage: bytes, framed: bool, generation: int) -> None:
    """Whatever one connection sends, the next is served."""

    async def scenario() -> None:
        async with serving(APIS | {ApiKey.METADATA: Api(0, 13, lambda request: None)}) as listener:
            sender = await RawClient.connect(listener)
            sender.writer.write(frame(garbage) if framed else garbage)
            sender.writer.write_eof()
            await sender.reader.read()
            client = await RawClient.connect(listener)
            client.send(heartbeat(generation))
            await client.receive()

    run(scenario())


def test_metadata_with_bytes_behind_it_is_answered() -> None:
    """Kafka ignores what follows a request inside its frame, and some clients rely on it."""
    answered: list[Any] = []

    def handler(request: Any) -> Any:
        answered.append(request.body.topics)
        raise LookupError("no answer is needed for this test")

    async def scenario() -> None:
        async with serving({ApiKey.METADATA: Api(0, 13, handler)}) as listener:
            client = await RawClient.connect(listener)
            request = client.frame(MetadataRequest(topics=(), include_topic_authorized_operations=False))
            client.writer.write(frame(request[4:] + b"more"))
            await client.closed_by_server()
            assert answered == [()]

    run(scenario())
