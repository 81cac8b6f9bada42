"""Slow readers and long answers: bounded memory, files by sendfile, nothing lost, nobody starved."""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from sparklog.node.serving.connection import Connection
from sparklog.node.serving.requests import Api, Deferred, Request
from sparklog.node.serving.turns import TURN_S
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from tests.garbage import uncollected
from tests.own_process import in_own_process
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    BytesRegion,
    RawClient,
    answer_heartbeat,
    fetch_request,
    fetch_response,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)


def fetching(records: Callable[[], Any]) -> dict[ApiKey, Api]:
    return {
        ApiKey.FETCH: Api(4, 12, lambda request: fetch_response(records())),
        ApiKey.HEARTBEAT: Api(0, 4, answer_heartbeat),
    }


def test_file_region_much_larger_than_the_socket_buffer_arrives_whole() -> None:
    """Sendfile stops whenever the reader is slow, and must go on from the very byte."""
    content = os.urandom(1 << 20) * 12
    region = BytesRegion(content, position=777)

    async def scenario() -> None:
        async with serving(fetching(lambda: region)) as listener:
            client = await RawClient.connect(listener, receive_buffer_bytes=8192)
            client.send(fetch_request(), heartbeat(9), fetch_request())
            for _ in range(2):
                (partition,) = (await client.receive()).responses[0].partitions
                assert partition.records == content[777:]
                if client._received == 1:
                    assert (await client.receive()).throttle_time == timedelta(milliseconds=9)

    run(scenario())


def test_response_of_several_regions_and_bytes_keeps_their_order() -> None:
    """A fetch of several partitions alternates headers and files."""
    parts = [os.urandom(size) for size in (10, 0, 100_000, 1, 70_000, 3_000_000)]

    def handler(request: Request) -> Any:
        mixed = [part if index == 2 else BytesRegion(part) for index, part in enumerate(parts)]
        return fetch_response(*mixed, None)

    async def scenario() -> None:
        async with serving({ApiKey.FETCH: Api(4, 12, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(fetch_request())
            response = await client.receive()
            assert [part.records for part in response.responses[0].partitions] == [*parts, None]

    run(scenario())


def test_file_truncated_while_it_is_sent_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The length was promised; padding would be a lie and waiting would be forever."""
    region = BytesRegion(bytes(30_000_000))

    async def scenario() -> None:
        async with serving(fetching(lambda: region)) as listener:
            client = await RawClient.connect(listener, receive_buffer_bytes=8192)
            client.send(fetch_request())
            await client.reader.readexactly(1000)
            region.truncate(1000)
            await client.reader.read()
            await until(lambda: listener.connection_count == 0)
            assert "bytes early" in caplog.text

    run(scenario())


def test_file_not_in_the_page_cache_is_read_by_another_thread_and_arrives() -> None:
    """A cold read on the loop's thread would stop every connection for as long as the disk takes."""
    content = os.urandom(3 << 20)
    region = BytesRegion(content)
    os.fsync(region.fileno())
    os.posix_fadvise(region.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if region.is_cached(0, len(content)):
        pytest.skip("this file system cannot be made to forget, or does not tell")

    async def scenario() -> None:
        async with serving(fetching(lambda: region)) as listener:
            client = await RawClient.connect(listener)
            client.send(fetch_request())
            (partition,) = (await client.receive()).responses[0].partitions
            assert partition.records == content

    run(scenario())


def test_client_that_does_not_read_is_not_handled_further_until_it_does() -> None:
    """Otherwise its answers would pile up in the broker's memory."""
    handled: list[int] = []
    filler = "x" * 50_000

    def handler(request: Request) -> Any:
        handled.append(request.body.generation_id)
        return HeartbeatResponse(throttle_time=timedelta(0), error_code=answer_heartbeat(request).error_code)

    def large(request: Request) -> Any:
        handled.append(request.body.max_bytes)
        return fetch_response(filler.encode())

    async def scenario() -> None:
        apis = {ApiKey.FETCH: Api(4, 12, large), ApiKey.HEARTBEAT: Api(0, 4, handler)}
        async with serving(apis) as listener:
            slow = await RawClient.connect(listener, receive_buffer_bytes=8192)
            requests = 2000
            slow.send(*(fetch_request(number) for number in range(requests)))
            other = await RawClient.connect(listener)
            settled = -1
            while settled != len(handled):
                settled = len(handled)
                for _ in range(20):  # the other is served meanwhile, again and again
                    other.send(heartbeat(-1))
                    await other.receive()
                settled += 20
            answered_early = sum(number >= 0 for number in handled)
            assert answered_early < requests / 4
            for _ in range(requests):
                await slow.receive()
            assert [number for number in handled if number >= 0] == list(range(requests))

    run(scenario())


def test_unanswered_requests_of_one_connection_are_bounded() -> None:
    """Each waits in memory; a client that pipelines without end must wait itself."""
    waiting: list[Deferred] = []

    def handler(request: Request) -> Any:
        waiting.append(Deferred())
        return waiting[-1]

    async def scenario() -> None:
        apis = {ApiKey.HEARTBEAT: Api(0, 4, handler)}
        async with serving(apis, max_outstanding_requests=8) as listener:
            client = await RawClient.connect(listener)
            client.send(*(heartbeat(number) for number in range(20)))
            await until(lambda: len(waiting) == 8)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(waiting) == 8
            waiting[0].complete(heartbeat_response(0))
            await client.receive()
            await until(lambda: len(waiting) == 9)
            done = 1
            while done < 20:
                await until(lambda: len(waiting) > done)  # noqa: B023
                waiting[done].complete(heartbeat_response(done))
                assert (await client.receive()).throttle_time == timedelta(milliseconds=done)
                done += 1

    run(scenario())


def test_one_connection_with_a_flood_of_requests_does_not_starve_another() -> None:
    """The loop is shared: a turn is bounded."""
    order: list[int] = []

    def handler(request: Request) -> Any:
        order.append(request.body.generation_id)
        return answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            flood, other = await RawClient.connect(listener), await RawClient.connect(listener)
            flood.send(*(heartbeat(0) for _ in range(3000)))
            await until(lambda: bool(order))
            other.send(heartbeat(1))
            await other.receive()
            assert order.index(1) < 3000
            for _ in range(3000):
                await flood.receive()

    run(scenario())


def test_reader_that_leaves_in_the_middle_of_an_answer_is_forgotten() -> None:
    """Consumers are killed too, and their file regions must be let go."""
    regions: list[BytesRegion] = []

    def records() -> BytesRegion:
        regions.append(BytesRegion(bytes(20_000_000)))
        return regions[-1]

    async def scenario() -> None:
        async with serving(fetching(records)) as listener:
            client = await RawClient.connect(listener, receive_buffer_bytes=8192)
            client.send(fetch_request())
            await client.reader.readexactly(10_000)
            client.writer.transport.abort()
            await until(lambda: listener.connection_count == 0)

    run(scenario())


def test_connection_twice_in_line_for_a_turn_handles_all_it_receives_in_the_first() -> None:
    """Else the frames lie in its buffer until the client sends more, and it waits for answers."""

    async def scenario() -> None:
        waiting: list[Deferred] = []

        def handle(request: Request) -> Any:
            if waiting:
                return answer_heartbeat(request)
            waiting.append(Deferred())
            return waiting[0]

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(0))
            await until(lambda: bool(waiting))
            for _ in range(50):
                listener.fair_queue.wait(lambda: listener.fair_queue.spent(TURN_S))
            await asyncio.sleep(0)
            client.send(*(heartbeat(number) for number in range(1, 400)))
            for _ in range(4):
                await asyncio.sleep(0)
            waiting[0].complete(heartbeat_response(0))
            for number in range(400):
                assert (await client.receive()).throttle_time.total_seconds() == number / 1000

    run(scenario())


def test_answer_for_which_there_is_no_thread_keeps_no_other_back(caplog: pytest.LogCaptureFixture) -> None:
    """Where the system allows no more threads, what is not in the page cache can't be sent."""

    class Cold(BytesRegion):
        def is_cached(self, start: int = 0, length: int | None = None) -> bool:
            return False

    def refused(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    waiting: list[tuple[Request, Deferred]] = []

    def later(request: Request) -> Deferred:
        waiting.append((request, Deferred()))
        return waiting[-1][1]

    async def scenario() -> None:
        loop: Any = asyncio.get_running_loop()
        apis = {ApiKey.FETCH: Api(4, 12, later), ApiKey.HEARTBEAT: Api(0, 4, later)}
        async with serving(apis) as listener:
            cold, warm = await RawClient.connect(listener), await RawClient.connect(listener)
            cold.send(fetch_request())
            await until(lambda: len(waiting) == 1)
            warm.send(heartbeat(1))
            await until(lambda: len(waiting) == 2)
            loop.run_in_executor = refused
            waiting[0][1].complete(fetch_response(Cold(bytes(100_000))))
            waiting[1][1].complete(answer_heartbeat(waiting[1][0]))
            assert (await warm.receive()).error_code is ErrorCode.none
            await until(lambda: listener.connection_count == 1)
            del loop.run_in_executor

    run(scenario())
    assert "can't start new thread" in caplog.text


@in_own_process
def test_connection_that_is_closed_is_no_garbage() -> None:
    """What only a collection finds is there until the next, which looks at everything there is."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            with uncollected(Connection) as left:
                clients = [await RawClient.connect(listener) for _ in range(5)]
                for client in clients:
                    client.send(heartbeat(1))
                    await client.receive()
                    client.writer.close()
                await until(lambda: listener.connection_count == 0)
                assert left() == []

    run(scenario())
