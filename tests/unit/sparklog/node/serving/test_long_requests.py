"""Answers made in steps: others go first, order is kept, nothing goes on for a connection that is gone."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from sparklog.node.serving.requests import Api, Deferred, Request, Response
from sparklog.node.serving.turns import MAX_LONG_REQUESTS, CoroutineDriver, FairQueue, held
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError
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


class Stepping:
    """A Fetch handler that takes steps until it is told that it may end, and says what became of them."""

    def __init__(self) -> None:
        self.may_end = False
        self.begun = self.ended = 0

    async def handle(self, request: Request) -> Response:
        self.begun += 1
        try:
            while not self.may_end:
                await turn()
            return fetch_response(b"records")
        finally:
            self.ended += 1

    def apis(self) -> dict[ApiKey, Api]:
        return {ApiKey.FETCH: Api(4, 12, self.handle), ApiKey.HEARTBEAT: Api(0, 4, answer_heartbeat)}


class Ending:
    """A request that is driven by itself, and tells what its coroutine returns."""

    def __init__(self, fair_queue: FairQueue, steps: Awaitable[int], done: list[int]) -> None:
        self.driver = CoroutineDriver(fair_queue, steps, self)
        self._done = done

    def pause(self) -> None:
        """It is not measured."""

    resume = hold = let_go = pause

    def finished(self, result: Any) -> None:
        """Tell it."""
        self._done.append(result)

    def failed(self, error: BaseException) -> None:
        """Fail the test."""
        pytest.fail(str(error))


def test_answer_in_steps_lets_other_connections_be_answered_before_its_end() -> None:
    """One request of a million things must not cost anybody else his session."""

    async def scenario() -> None:
        handler = Stepping()
        async with serving(handler.apis()) as listener:
            slow, other = await RawClient.connect(listener), await RawClient.connect(listener)
            slow.send(fetch_request())
            await until(lambda: handler.begun == 1)
            other.send(heartbeat(), heartbeat())
            await other.receive()
            await other.receive()
            assert handler.ended == 0
            handler.may_end = True
            assert (await slow.receive()).responses[0].partitions[0].records == b"records"

    run(scenario())


def test_request_after_one_in_steps_is_handled_when_the_first_is_answered() -> None:
    """A producer's second batch must not overtake its first."""

    async def scenario() -> None:
        handler = Stepping()
        handled: list[int] = []

        def note(request: Request) -> Any:
            handled.append(request.body.generation_id)
            return answer_heartbeat(request)

        apis = handler.apis() | {ApiKey.HEARTBEAT: Api(0, 4, note)}
        async with serving(apis) as listener:
            client, other = await RawClient.connect(listener), await RawClient.connect(listener)
            client.send(heartbeat(1), fetch_request(), heartbeat(2))
            await until(lambda: handler.begun == 1)
            other.send(heartbeat(3))
            await other.receive()
            assert handled == [1, 3]
            handler.may_end = True
            for _ in range(3):
                await client.receive()
            assert handled == [1, 3, 2]

    run(scenario())


def test_answer_that_waits_for_a_future_takes_no_step_before_that_is_done() -> None:
    """What a thread does is waited for, not asked after in every turn; long requests go on beside it."""

    async def scenario() -> None:
        done: list[asyncio.Future[None]] = []
        handled: list[str] = []

        async def handle(request: Request) -> Response:
            done.append(asyncio.get_running_loop().create_future())
            await held(done[-1])
            handled.append("went on" if done[-1].done() else "went on too early")
            return fetch_response(b"records")

        def note(request: Request) -> Any:
            handled.append("heartbeat")
            return answer_heartbeat(request)

        apis = {ApiKey.FETCH: Api(4, 12, handle), ApiKey.HEARTBEAT: Api(0, 4, note)}
        async with serving(apis) as listener:
            waiting = [await RawClient.connect(listener) for _ in range(MAX_LONG_REQUESTS + 2)]
            for client in waiting:
                client.send(fetch_request(), heartbeat())
            await until(lambda: len(done) == len(waiting))
            assert handled == []
            done[-1].set_result(None)
            await until(lambda: handled == ["went on", "heartbeat"])
            for future in done[:-1]:
                future.set_result(None)
            for client in waiting:
                await client.receive()
                await client.receive()
            assert sorted(handled) == ["heartbeat"] * len(waiting) + ["went on"] * len(waiting)

    run(scenario())


def test_answer_whose_connection_is_lost_while_it_waits_for_a_future_is_never_gone_on_with() -> None:
    """What was asked for by who is gone is not done later."""

    async def scenario() -> None:
        done: list[asyncio.Future[None]] = []
        became: list[str] = []

        async def handle(request: Request) -> Response:
            done.append(asyncio.get_running_loop().create_future())
            try:
                await held(done[-1])
                became.append("went on")
            finally:
                became.append("ended")
            return fetch_response(b"records")

        async with serving({ApiKey.FETCH: Api(4, 12, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(fetch_request())
            await until(lambda: len(done) == 1)
        assert became == ["ended"]
        done[0].set_result(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert became == ["ended"]

    run(scenario())


def test_frames_received_during_an_answer_in_steps_leave_its_request_as_it_was() -> None:
    """Both lie in the connection's one buffer, and it is the handler's until it has ended."""

    async def scenario() -> None:
        handler = Stepping()
        seen: list[bytes] = []

        async def handle(request: Request) -> Response:
            answer = await handler.handle(request)
            seen.append(bytes(request.frame))
            return answer

        apis = handler.apis() | {ApiKey.FETCH: Api(4, 12, handle)}
        async with serving(apis) as listener:
            client = await RawClient.connect(listener)
            frame = client.frame(fetch_request())
            client.writer.write(frame)
            await until(lambda: handler.begun == 1)
            client.send(*(heartbeat(number, "g" * 20_000) for number in range(50)))
            for _ in range(20):
                await asyncio.sleep(0)
            handler.may_end = True
            for _ in range(51):
                await client.receive()
            assert seen == [frame[4:]]

    run(scenario())


def test_listener_closed_during_answers_in_steps_ends_the_steps() -> None:
    """What works for nobody would keep a stopped broker's logs and loop."""

    async def scenario() -> None:
        handler = Stepping()
        async with serving(handler.apis()) as listener:
            clients = [await RawClient.connect(listener) for _ in range(2 * MAX_LONG_REQUESTS)]
            for client in clients:
                client.send(fetch_request())
            await until(lambda: handler.begun == len(clients))
            assert handler.ended == 0
        assert handler.ended == len(clients)

    run(scenario())


def test_long_requests_beyond_the_limit_wait_until_one_of_the_first_is_answered() -> None:
    """What long requests take of memory is bounded only if their number at work is."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        fair_queue = FairQueue(loop)
        endings = [False] * 3 * MAX_LONG_REQUESTS
        steps_taken = [0] * len(endings)
        done: list[int] = []

        async def steps(number: int) -> Response:
            while not endings[number]:
                steps_taken[number] += 1
                await turn()
            return number

        works = [Ending(fair_queue, steps(number), done).driver for number in range(len(endings))]
        for work in works:
            work.begin_later()
        first = range(MAX_LONG_REQUESTS)
        await until(lambda: all(steps_taken[number] for number in first))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(steps_taken[MAX_LONG_REQUESTS:])
        endings[1] = True
        await until(lambda: steps_taken[MAX_LONG_REQUESTS] > 0)
        assert (done, any(steps_taken[MAX_LONG_REQUESTS + 1 :])) == ([1], False)
        for gone in (0, MAX_LONG_REQUESTS + 1):  # one at work, and the next in line
            works[gone].abandon()
        await until(lambda: steps_taken[MAX_LONG_REQUESTS + 2] > 0)
        assert steps_taken[MAX_LONG_REQUESTS + 1] == 0
        endings[:] = [True] * len(endings)
        await until(lambda: len(done) == len(endings) - 2)

    run(scenario())


def test_long_requests_that_wait_for_futures_leave_their_room_to_others() -> None:
    """A transaction's first batch waits for an answer of its coordinator, which may have this listener."""

    async def scenario() -> None:
        fair_queue = FairQueue(asyncio.get_running_loop())
        verified = asyncio.get_running_loop().create_future()
        began: list[int] = []
        done: list[int] = []

        async def produce(number: int) -> Response:
            began.append(number)
            await turn()
            await held(verified)
            await turn()
            return number

        async def verify() -> Response:
            await turn()
            verified.set_result(None)
            return -1

        works = [Ending(fair_queue, produce(number), done).driver for number in range(4)]
        for work in works:
            work.begin_later()
        await until(lambda: len(began) == len(works))
        works[0].abandon()
        Ending(fair_queue, verify(), done).driver.begin_later()
        await until(lambda: len(done) == len(works))
        assert sorted(done) == [-1, 1, 2, 3]

    run(scenario())


def test_steps_that_fail_close_their_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    """A handler's mistake must not stop the loop, whichever turn it shows in."""

    async def scenario() -> None:
        failing = False

        async def handle(request: Request) -> Response:
            while not failing:
                await turn()
            raise ZeroDivisionError

        apis = {ApiKey.FETCH: Api(4, 12, handle), ApiKey.HEARTBEAT: Api(0, 4, answer_heartbeat)}
        async with serving(apis) as listener:
            client, other = await RawClient.connect(listener), await RawClient.connect(listener)
            client.send(fetch_request())
            other.send(heartbeat())
            await other.receive()
            failing = True
            assert await client.closed_by_server()
            other.send(heartbeat())
            await other.receive()

    run(scenario())
    assert "ZeroDivisionError" in caplog.text


def test_steps_that_end_in_a_deferred_answer_are_answered_when_it_is() -> None:
    """Some requests look at many partitions first and then wait for replicas."""

    async def scenario() -> None:
        deferred = Deferred()

        async def handle(request: Request) -> Response:
            await turn()
            return deferred

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            await asyncio.sleep(0)
            deferred.complete(heartbeat_response(7))
            assert (await client.receive()).throttle_time.total_seconds() == 0.007

    run(scenario())


def test_row_under_something_has_it_looked_at_before_the_handler_and_before_each_further_step() -> None:
    """A lease that runs out in the middle of a long answer must show in the rest of it."""

    async def scenario() -> None:
        seen: list[str] = []

        def handle(request: Request) -> Awaitable[Response]:
            seen.append("handler")
            return first(request)

        async def first(request: Request) -> Response:
            seen.append("first step")
            await turn()
            seen.append("second step")
            return last(request)

        async def last(request: Request) -> Response:
            seen.append("third step")
            await turn()
            seen.append("answer")
            return answer_heartbeat(request)

        row = Api(0, 4, handle, under=lambda: seen.append("look"))
        async with serving({ApiKey.HEARTBEAT: row}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(7))
            assert (await client.receive()).throttle_time.total_seconds() == 0.007
        assert seen == [
            "look",
            "handler",
            "first step",
            "look",
            "second step",
            "third step",
            "look",
            "answer",
        ]

    run(scenario())


def test_row_under_something_that_does_not_hold_any_more_takes_no_further_step() -> None:
    """What may not go on must not, whatever of it is done already."""

    async def scenario() -> None:
        seen: list[str] = []

        def look() -> None:
            if seen:
                raise KafkaError(ErrorCode.not_leader_or_follower, "the lease has run out")

        async def handle(request: Request) -> Response:
            seen.append("first step")
            await turn()
            seen.append("second step")
            return answer_heartbeat(request)

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle, under=look)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            assert await client.closed_by_server()
        assert seen == ["first step"]

    run(scenario())
