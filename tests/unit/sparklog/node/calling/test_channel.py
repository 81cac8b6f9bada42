"""The clients: pipelined, bounded in time, and told by name what went wrong."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.heartbeat.v0.request import HeartbeatRequest as HeartbeatRequestV0

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.calling.channel import Channel
from sparklog.node.serving.requests import Api, Deferred, Request
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.application_secret import SECRET
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    BytesRegion,
    answer_heartbeat,
    fetch_request,
    fetch_response,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)

Ask = Callable[..., Coroutine[Any, Any, Any]]
DEADLINE_MS: Final = 20_000


async def ask_channel(host: str, port: int, entity: Any, timeout_ms: int = DEADLINE_MS) -> Any:
    channel = await Channel.connect(
        host, port, "test", connect_timeout_ms=DEADLINE_MS, request_timeout_ms=timeout_ms
    )
    try:
        return await channel.request(entity)
    finally:
        channel.close()


async def ask_blocking_channel(host: str, port: int, entity: Any, timeout_ms: int = DEADLINE_MS) -> Any:
    def ask() -> Any:
        with BlockingChannel(host, port, "test", timeout_s=timeout_ms / 1000) as channel:
            return channel.request(entity)

    return await asyncio.to_thread(ask)


BOTH = pytest.mark.parametrize("ask", [ask_channel, ask_blocking_channel], ids=["Channel", "BlockingChannel"])


@asynccontextmanager
async def impostor(answer: bytes, *, hang: bool = False) -> AsyncIterator[int]:
    """Serve one fixed answer to whatever comes, then close (or keep silent); yield the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        if hang:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@BOTH
def test_request_is_answered_in_its_version(ask: Ask) -> None:
    """The two sides of the wire understand each other."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            assert await ask("127.0.0.1", listener.port, heartbeat(5)) == heartbeat_response(5)
            old = HeartbeatRequestV0(group_id="g", generation_id=1, member_id="m")
            assert (await ask("localhost", listener.port, old)).__version__ == 0

    run(scenario())


@BOTH
def test_large_response_arrives_whole(ask: Ask) -> None:
    """Fetch responses are megabytes, and come in pieces."""
    content = bytes(range(256)) * 40_000
    region = BytesRegion(content)

    async def scenario() -> None:
        async with serving({ApiKey.FETCH: Api(4, 12, lambda _: fetch_response(region))}) as listener:
            response = await ask("127.0.0.1", listener.port, fetch_request())
            assert response.responses[0].partitions[0].records == content

    run(scenario())


@BOTH
def test_refused_connection_is_a_network_exception(ask: Ask) -> None:
    """Callers try another broker on this error, and on no other."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(KafkaError, match=f"127.0.0.1:{port}") as caught:
            run(ask("127.0.0.1", port, heartbeat()))
    assert caught.value.error_code is ErrorCode.network_exception


@BOTH
@pytest.mark.parametrize("host", ["a..b", "x" * 64, "é" * 64, "nul\0", "", "no.such.host.invalid"])
def test_host_that_cannot_be_is_a_network_exception(ask: Ask, host: str) -> None:
    """Hosts come from options and from what brokers say of themselves; Python has other errors for some."""
    with pytest.raises(KafkaError) as caught:
        run(ask(host, 9092, heartbeat()))
    assert caught.value.error_code is ErrorCode.network_exception


def test_connection_for_which_no_thread_is_left_is_a_network_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container may have as many as it is let have; whoever sends again after errors of Kafka then does."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            await Channel.connect("localhost", 9092, "test")

    with pytest.raises(KafkaError, match="can't start new thread") as caught:
        run(scenario())
    assert caught.value.error_code is ErrorCode.network_exception


BAD_ANSWERS = {
    "connection closed": (b"", ErrorCode.network_exception),
    "closed in the middle": (struct.pack(">i", 100) + bytes(10), ErrorCode.network_exception),
    "another correlation id": (struct.pack(">ii", 12, 77) + bytes(8), ErrorCode.network_exception),
    "a negative length": (struct.pack(">i", -5) + bytes(50), ErrorCode.network_exception),
    "an enormous length": (struct.pack(">i", 2**31 - 1) + bytes(50), ErrorCode.network_exception),
    "a body cut off": (struct.pack(">ii", 6, 0) + b"\0\0", ErrorCode.invalid_request),
    "an impossible array": (
        struct.pack(">iib", 30, 0, 0) + bytes(4 + 2 + 4) + b"\xff\xff\xff\xff\x07" + bytes(15),
        ErrorCode.invalid_request,
    ),
}


@BOTH
@pytest.mark.parametrize("what", BAD_ANSWERS)
def test_bad_answer_is_a_named_error(ask: Ask, what: str) -> None:
    """A broken or foreign server must not take its clients along."""
    answer, error_code = BAD_ANSWERS[what]

    async def scenario() -> None:
        async with impostor(answer) as port:
            with pytest.raises(KafkaError) as caught:
                await ask("127.0.0.1", port, fetch_request())
            assert caught.value.error_code is error_code

    run(scenario())


def peak_resident_bytes() -> int:
    """Return how much memory this process had at most: reserved and never touched does not count."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def peak_resident_bytes_anew() -> int:
    """Forget earlier peaks (proc(5), clear_refs); return what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_resident_bytes()


@BOTH
def test_answer_that_claims_to_be_large_takes_no_memory(ask: Ask) -> None:
    """A length is only a claim; memory follows what was received."""

    async def scenario() -> None:
        async with impostor(struct.pack(">i", 1 << 29) + bytes(100)) as port:
            before_bytes = peak_resident_bytes_anew()
            with pytest.raises(KafkaError) as caught:
                await ask("127.0.0.1", port, fetch_request())
            assert caught.value.error_code is ErrorCode.network_exception
            assert peak_resident_bytes() - before_bytes < 8_000_000

    run(scenario())


@pytest.mark.parametrize("is_blocking", [False, True])
def test_server_that_has_not_proved_who_it_is_may_not_answer_much(is_blocking: bool) -> None:
    """Whoever has taken a broker's port could fill the memory of all who come to it, before they know him."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(struct.pack(">i", 1 << 20))
        await reader.read(-1)
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        with pytest.raises(KafkaError, match="a response of 1048576 bytes, of at most 524288"):
            if is_blocking:
                await asyncio.to_thread(BlockingChannel, host, port, "test", login=SECRET.login)
            else:
                await Channel.connect(host, port, "test", login=SECRET.login)
        server.close()

    run(scenario())


@BOTH
def test_silent_server_is_a_timeout(ask: Ask) -> None:
    """A broker that hangs instead of dying must not hang its peers."""

    async def scenario() -> None:
        async with impostor(b"", hang=True) as port:
            with pytest.raises(KafkaError) as caught:
                await ask("127.0.0.1", port, heartbeat(), timeout_ms=200)
            assert caught.value.error_code is ErrorCode.request_timed_out

    run(scenario())


def test_process_that_stands_still_is_given_up_in_the_time_there_is_to_connect() -> None:
    """The kernel accepts for it, and a follower that waited for its login would wait as for an answer."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as standing_still:
            with pytest.raises(KafkaError, match="did not answer within 100 ms") as caught:
                await Channel.connect(
                    *standing_still.getsockname(),
                    "test",
                    connect_timeout_ms=100,
                    request_timeout_ms=DEADLINE_MS,
                    login=SECRET.login,
                )
            assert caught.value.error_code is ErrorCode.network_exception
            accepted, _ = standing_still.accept()
            with accepted:
                while await asyncio.to_thread(accepted.recv, 4096):
                    pass  # it is told that nobody waits any more

    run(scenario())


def test_channel_pipelines_and_answers_in_order() -> None:
    """A follower's next fetch and a heartbeat may be on their way together."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test")
            futures = [channel.request(heartbeat(number)) for number in range(300)]
            futures[7].cancel()  # its answer is dropped, and the others keep theirs
            answers = await asyncio.gather(*futures[:7], *futures[8:])
            numbers = [answer.throttle_time // timedelta(milliseconds=1) for answer in answers]
            assert numbers == [number for number in range(300) if number != 7]
            channel.close()

    run(scenario())


def test_channel_close_fails_what_is_outstanding_and_what_comes_after() -> None:
    """Nobody may wait for an answer that cannot come."""

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, lambda request: Deferred())}) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test")
            outstanding = channel.request(heartbeat())
            channel.close()
            channel.close()
            assert channel.closed.done()
            for future in (outstanding, channel.request(heartbeat())):
                with pytest.raises(KafkaError) as caught:
                    await future
                assert caught.value.error_code is ErrorCode.network_exception
            await until(lambda: listener.connection_count == 0)

    run(scenario())


def test_channel_is_closed_when_the_server_goes() -> None:
    """The owner of a channel waits on `closed` to make the next."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test")
            await channel.request(heartbeat())
        await channel.closed

    run(scenario())


def test_negotiated_channel_asks_in_a_version_both_sides_know() -> None:
    """A newer client works with an older cluster, and says by name what it cannot have."""
    versions: list[int] = []

    def handler(request: Request) -> Any:
        versions.append(request.api_version)
        return answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(1, 2, handler)}) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test")
            usable = await channel.negotiate()
            assert usable == {
                ApiKey.HEARTBEAT: SupportedVersions(1, 2),
                ApiKey.SASL_HANDSHAKE: SupportedVersions(0, 1),
                ApiKey.API_VERSIONS: SupportedVersions(0, 4),
                ApiKey.SASL_AUTHENTICATE: SupportedVersions(0, 2),
            }
            assert (await channel.request(heartbeat(3))).__version__ == 2
            assert versions == [2]
            for entity in (
                HeartbeatRequestV0(group_id="g", generation_id=0, member_id="m"),
                CreateTopicsRequest(topics=(), timeout=timedelta(0)),
            ):
                with pytest.raises(KafkaError) as caught:
                    await channel.request(entity)
                assert caught.value.error_code is ErrorCode.unsupported_version
            channel.close()

    run(scenario())


def test_negotiation_with_an_older_server_asks_again_in_its_version() -> None:
    """An old server answers our ApiVersions in v0, with an error and the versions it has (KIP-511)."""
    asked: list[bytes] = []
    refusal = struct.pack(">ihi", 0, 35, 1) + struct.pack(">hhh", 18, 0, 2)
    answer = struct.pack(">ihi", 1, 0, 2) + struct.pack(">hhhhhh", 18, 0, 2, 12, 0, 3) + struct.pack(">i", 0)

    def serve(listening: socket.socket) -> None:
        connected, _ = listening.accept()
        with connected:
            for response in (refusal, answer):
                size = int.from_bytes(connected.recv(4), "big")
                asked.append(connected.recv(size, socket.MSG_WAITALL))
                connected.sendall(struct.pack(">i", len(response)) + response)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        with BlockingChannel("127.0.0.1", listening.getsockname()[1], "test", timeout_s=5) as channel:
            usable = channel.negotiate()
        thread.join()
    assert [int.from_bytes(frame[2:4], "big") for frame in asked] == [4, 2]
    assert usable[ApiKey.HEARTBEAT] == SupportedVersions(0, 3)


def test_blocking_channel_pipelines_and_answers_in_order() -> None:
    """A Spark task keeps several produce requests on their way."""

    def pipeline(port: int) -> list[int]:
        with BlockingChannel("127.0.0.1", port, "test", timeout_s=5) as channel:
            for number in range(50):
                channel.send(heartbeat(number))
            assert channel.outstanding == 50
            numbers = [channel.receive().throttle_time // timedelta(milliseconds=1) for _ in range(50)]
        assert channel.closed
        with pytest.raises(KafkaError) as caught:
            channel.send(heartbeat())
        assert caught.value.error_code is ErrorCode.network_exception
        return numbers

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            assert await asyncio.to_thread(pipeline, listener.port) == list(range(50))

    run(scenario())


def test_channel_next_request_may_be_sent_by_the_callback_of_the_one_before() -> None:
    """A follower's fetches follow each other so, while the answer before is still in the receive buffer."""
    content = bytes(range(256)) * 200
    region = BytesRegion(content)

    async def scenario() -> None:
        async with serving({ApiKey.FETCH: Api(4, 12, lambda _: fetch_response(region))}) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test")
            taken: list[bytes] = []

            def answer(response: Any) -> None:
                taken.append(response.responses[0].partitions[0].records)
                if len(taken) < 3:
                    channel.request_then(fetch_request(), answer, failures.append, DEADLINE_MS)

            failures: list[KafkaError] = []
            channel.request_then(fetch_request(), answer, failures.append, DEADLINE_MS)
            await until(lambda: len(taken) == 3)
            channel.close()
            assert taken == [content] * 3
            assert failures == []
            with pytest.raises(KafkaError, match="the connection is closed") as caught:
                channel.request_then(fetch_request(), answer, failures.append, DEADLINE_MS)
            assert caught.value.error_code is ErrorCode.network_exception

    run(scenario())


def test_channel_callbacks_of_outstanding_requests_fail_once_when_it_closes() -> None:
    """A follower connects again; a failure that came twice would make two connections."""

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, lambda request: Deferred())}) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test")
            answers: list[Any] = []
            failures: list[KafkaError] = []
            for _ in range(2):
                channel.request_then(heartbeat(), answers.append, failures.append, DEADLINE_MS)
            channel.close()
            channel.close()
            assert answers == []
            assert [failure.error_code for failure in failures] == [ErrorCode.network_exception] * 2

    run(scenario())


def test_channel_request_behind_an_answered_one_expires_in_its_own_time() -> None:
    """One timer serves all requests, and the one that it was set for is mostly answered before."""
    pending: list[Deferred] = []

    def handle(request: Request) -> Any:
        pending.append(Deferred())
        return pending[-1]

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            channel = await Channel.connect("127.0.0.1", listener.port, "test")
            loop = asyncio.get_running_loop()
            first = channel.request(heartbeat(), timeout_ms=150)
            await until(lambda: len(pending) == 1)
            pending[0].complete(heartbeat_response())
            await first
            patient = channel.request(heartbeat(), timeout_ms=DEADLINE_MS)
            began_s = loop.time()
            hasty = channel.request(heartbeat(), timeout_ms=300)
            with pytest.raises(KafkaError, match="not answered within 300 ms") as caught:
                await hasty
            assert caught.value.error_code is ErrorCode.request_timed_out
            assert loop.time() - began_s >= 0.3
            with pytest.raises(KafkaError, match="a request before timed out") as caught:
                await patient
            assert caught.value.error_code is ErrorCode.network_exception

    run(scenario())
