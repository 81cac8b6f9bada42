"""Coroutines of requests: what they hold while they wait, and what becomes of them with their connection."""

import asyncio

import pytest

from sparklog.node.serving.requests import Api, Deferred, Request, Response
from sparklog.node.serving.turns import MAX_LONG_REQUESTS, held, in_task
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from tests.unit.sparklog.node.serving.serving import (
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


def test_requests_behind_a_coroutine_that_waits_for_others_are_handled_meanwhile() -> None:
    """A group's rebalance takes seconds, and its members' heartbeats come by the same connection."""

    async def scenario() -> None:
        deferred, future = Deferred(), asyncio.get_running_loop().create_future()
        handled: list[int] = []

        async def handle(request: Request) -> Response:
            generation_id = request.body.generation_id
            handled.append(generation_id)
            if generation_id == 1:
                return await deferred
            if generation_id == 2:
                await future
            return answer_heartbeat(request)

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(1), heartbeat(2), heartbeat(3))
            await until(lambda: handled == [1, 2, 3])
            future.set_result(None)
            deferred.complete(heartbeat_response(1))
            answers = [await client.receive() for _ in range(3)]
            assert [answer.throttle_time.microseconds for answer in answers] == [1_000, 2_000, 3_000]

    run(scenario())


def test_requests_behind_a_coroutine_that_waits_with_its_connection_held_come_after_it() -> None:
    """A producer's second batch must not overtake its first, whose records a thread has to look into."""

    async def scenario() -> None:
        deferred = Deferred()
        handled: list[int] = []

        async def handle(request: Request) -> Response:
            handled.append(request.body.generation_id)
            if request.body.generation_id > 1:
                return answer_heartbeat(request)
            answer = await held(deferred)
            handled.append(-1)
            return answer

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client, other = await RawClient.connect(listener), await RawClient.connect(listener)
            client.send(heartbeat(1), heartbeat(2))
            await until(lambda: handled == [1])
            other.send(heartbeat(3))
            await other.receive()
            assert handled == [1, 3]
            deferred.complete(heartbeat_response())
            assert handled == [1, 3]  # who completes it may be what is asked next
            for _ in range(2):
                await client.receive()
            assert handled == [1, 3, -1, 2]

    run(scenario())


def test_coroutine_whose_connection_is_lost_ends_with_what_it_waits_for() -> None:
    """Fetchers and members disconnect at any time: their coroutines and awaited responses end with them."""

    async def scenario() -> None:
        begun: list[str] = []
        told: list[str] = []
        deferred = Deferred(on_abandoned=lambda: told.append("abandoned"))

        async def of_a_task() -> None:
            begun.append("task")
            try:
                async with asyncio.timeout(60):
                    await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                told.append("cancelled")
                raise

        async def handle(request: Request) -> Response:
            begun.append("handler")
            try:
                return await (deferred if request.body.generation_id == 1 else in_task(of_a_task()))
            finally:
                told.append(f"ended {request.body.generation_id}")

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(1), heartbeat(2))
            await until(lambda: begun == ["handler", "handler", "task"])
            client.close()
            await until(lambda: len(told) == 4)
        assert told == ["abandoned", "ended 1", "ended 2", "cancelled"]
        deferred.complete(heartbeat_response())  # without effect

    run(scenario())


def test_coroutine_that_a_deferred_wakes_goes_on_at_once_and_yields_its_next_turn() -> None:
    """An acknowledgement leaves in the turn that commits it; a long answer does not keep who completes it."""

    async def scenario() -> None:
        deferred = Deferred()
        seen: list[str] = []

        async def handle(request: Request) -> Response:
            seen.append("waits")
            await deferred
            seen.append("is woken")
            await turn()
            seen.append("goes on")
            return fetch_response(b"records")

        async with serving({ApiKey.FETCH: Api(4, 12, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(fetch_request())
            await until(lambda: seen == ["waits"])
            deferred.complete(None)
            assert seen == ["waits", "is woken"]
            await client.receive()
            assert seen == ["waits", "is woken", "goes on"]

    run(scenario())


def test_coroutine_whose_future_is_cancelled_closes_its_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A pool that shuts down is no mistake of the handler's, and other clients have no part in it."""

    async def scenario() -> None:
        future = asyncio.get_running_loop().create_future()

        async def handle(request: Request) -> Response:
            await held(future)
            return fetch_response(b"records")

        apis = {ApiKey.FETCH: Api(4, 12, handle), ApiKey.HEARTBEAT: Api(0, 4, answer_heartbeat)}
        async with serving(apis) as listener:
            client, other = await RawClient.connect(listener), await RawClient.connect(listener)
            client.send(fetch_request())
            other.send(heartbeat())
            await other.receive()
            future.cancel()
            assert await client.closed_by_server()
            other.send(heartbeat())
            await other.receive()

    run(scenario())
    assert "failed" not in caplog.text


def test_deferred_that_expires_answers_in_place_of_who_holds_it() -> None:
    """A coordinator that is late completes it later, and nothing comes of that."""

    async def scenario() -> None:
        late, later = Deferred(), Deferred()

        async def handle(request: Request) -> Response:
            assert await late is None
            return await later

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            asyncio.get_running_loop().call_soon(later.expire, heartbeat_response(7))
            asyncio.get_running_loop().call_later(0, late.expire, None)
            assert (await client.receive()).throttle_time.microseconds == 7_000
            later.complete(heartbeat_response())
            later.expire(None)

    run(scenario())


def test_answer_after_a_wait_is_sent_before_long_requests_end() -> None:
    """A change by the controller takes turns before it is committed, and its answer is short all the same."""

    async def scenario() -> None:
        deferred, waiting, ended = Deferred(), asyncio.Event(), False
        begun: list[int] = []

        async def handle(request: Request) -> Response:
            begun.append(request.body.max_bytes)
            if request.body.max_bytes > 1:
                while not ended:
                    await turn()
                return fetch_response(b"long")
            await turn()
            waiting.set()
            return await deferred

        async with serving({ApiKey.FETCH: Api(4, 12, handle)}) as listener:
            short = await RawClient.connect(listener)
            long = [await RawClient.connect(listener) for _ in range(MAX_LONG_REQUESTS)]
            for client in long:
                client.send(fetch_request(2))
            await until(lambda: len(begun) == MAX_LONG_REQUESTS)
            short.send(fetch_request(1))
            await waiting.wait()
            deferred.complete(fetch_response(b"short"))
            await short.receive()
            ended = True
            for client in long:
                await client.receive()

    run(scenario())
