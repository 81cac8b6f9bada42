"""A client that is to hold back is answered at once, and then not heard; others are heard as ever."""

import asyncio
import time
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest

from sparklog.node.serving.admission import OPEN
from sparklog.node.serving.connection import Connection
from sparklog.node.serving.requests import NO_RESPONSE, Api, Request, Response, Throttled
from sparklog.node.serving.turns import SHARE_S
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoded import EncodedBody, RawResponse
from sparklog.protocol.codec.frames import encode_response_frame, request_codec
from sparklog.protocol.codec.steps import turn
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

THROTTLE_MS = 150
LONG_MS = 3_600_000
MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize("when", ["it came", "it was answered"])
def test_muted_client_that_goes_on_asking_is_heard_when_its_time_is_over(when: str) -> None:
    """The answer leaves at once and says how long; whoever ignores that has gained nothing."""
    asked_s: list[float] = []

    def meter(request: Request) -> Metered | None:
        asked_s.append(asyncio.get_running_loop().time())
        if len(asked_s) > 1:
            return None
        return Metered(THROTTLE_MS) if when == "it came" else Metered(0, worked_ms=THROTTLE_MS)

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, admission=OPEN._replace(meter=meter)) as listener:
            client = await RawClient.connect(listener)
            client.send(*[heartbeat()] * 3)
            assert (await client.receive()).throttle_time == THROTTLE_MS * MILLISECOND
            assert len(asked_s) == 1
            assert [(await client.receive()).throttle_time for _ in range(2)] == [timedelta()] * 2
            assert asked_s[1] - asked_s[0] >= THROTTLE_MS / 1000 - 0.001

    run(scenario())


def test_muted_client_delays_nobody_else() -> None:
    """One client's excess is no reason for another to wait, though they share a loop and an address."""

    def meter(request: Request) -> Metered | None:
        return Metered(LONG_MS) if request.body.group_id == "greedy" else None

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, admission=OPEN._replace(meter=meter)) as listener:
            greedy, modest = await RawClient.connect(listener), await RawClient.connect(listener)
            greedy.send(*[heartbeat(group_id="greedy")] * 50)
            assert (await greedy.receive()).throttle_time == LONG_MS * MILLISECOND
            for _ in range(20):
                modest.send(heartbeat())
                assert (await modest.receive()).throttle_time == timedelta()
            assert listener.metrics.of("Heartbeat").count == 21

    run(scenario())


def test_longest_of_several_throttle_times_holds() -> None:
    """A request may exceed two quotas, and its connection may be mute already."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            await client.receive()
            (connection,) = listener._connections
            assert isinstance(connection, Connection)
            connection.mute(THROTTLE_MS)
            connection.mute(1)
            began_s = asyncio.get_running_loop().time()
            client.send(heartbeat())
            await client.receive()
            assert asyncio.get_running_loop().time() - began_s >= THROTTLE_MS / 1000 - 0.005

    run(scenario())


def test_muted_connection_that_is_closed_leaves_no_timer() -> None:
    """Its timer would hold it, and what it holds, for as long as it was to be mute."""

    async def scenario() -> None:
        async with serving(
            HEARTBEAT_ONLY, admission=OPEN._replace(meter=lambda request: Metered(LONG_MS))
        ) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            await client.receive()
            (connection,) = listener._connections
            connection.close()
            timer = connection._unmuting
            assert timer is not None
            assert timer.cancelled()

    run(scenario())


def raw(throttle_ms: int) -> RawResponse:
    """Return an answer to Heartbeat v4 as another node has made it."""
    chunks: list[Any] = encode_response_frame(request_codec(12, 4), 0, heartbeat_response(throttle_ms))
    return RawResponse(b"".join(chunks)[4:])


async def later(response: Any) -> Any:
    """Return the answer after a turn."""
    await asyncio.sleep(0)
    return response


async def in_steps(response: Any) -> Response:
    """Return the answer after a step."""
    await turn()
    return response


@pytest.mark.parametrize(
    ("response", "metered_ms", "told_ms"),
    [
        (lambda: Throttled(heartbeat_response(), 300), 0, 300),
        (lambda: Throttled(heartbeat_response(), 300), 500, 500),
        (lambda: later(Throttled(heartbeat_response(), 300)), 0, 300),
        (lambda: in_steps(Throttled(heartbeat_response(), 300)), 0, 300),
        (lambda: raw(300), 0, 300),
        (lambda: raw(300), 200, 300),
        (lambda: raw(300), 500, 500),
        (lambda: EncodedBody(b"\0\0\0\0\0\0\0"), 500, 500),
    ],
)
def test_answer_tells_the_longest_throttle_time_and_the_connection_is_mute(
    response: Any, metered_ms: int, told_ms: int
) -> None:
    """Whoever says it: a handler, the node that a request was forwarded to, or a quota of the listener's."""

    async def scenario() -> None:
        async with serving(
            {ApiKey.HEARTBEAT: Api(0, 4, lambda request: response())},
            admission=OPEN._replace(meter=lambda request: Metered(metered_ms)),
        ) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            assert (await client.receive()).throttle_time == told_ms * MILLISECOND
            (connection,) = listener._connections
            assert connection._unmuting is not None
            left_s = connection._unmuting.when() - asyncio.get_running_loop().time()
            assert told_ms / 1000 - 1 < left_s <= told_ms / 1000

    run(scenario())


def test_request_without_an_answer_mutes_too() -> None:
    """acks=0 must not be a way around a quota."""
    handled: list[int] = []

    def handle(request: Request) -> Any:
        handled.append(request.body.generation_id)
        return NO_RESPONSE

    async def scenario() -> None:
        async with serving(
            {ApiKey.HEARTBEAT: Api(0, 4, handle)},
            admission=OPEN._replace(meter=lambda request: Metered(THROTTLE_MS)),
        ) as listener:
            client = await RawClient.connect(listener)
            began_s = asyncio.get_running_loop().time()
            client.send(heartbeat(1), heartbeat(2), heartbeat(3))
            await until(lambda: len(handled) == 3)
            assert asyncio.get_running_loop().time() - began_s >= 2 * THROTTLE_MS / 1000 - 0.005

    run(scenario())


def test_meter_hears_what_a_request_took_in_all() -> None:
    """Writing the answer's bytes is work for the client as well."""
    meter = Metered(0)

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY, admission=OPEN._replace(meter=lambda request: meter)) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            await client.receive()
            assert meter.worked_s == listener.metrics.of("Heartbeat").local_s

    run(scenario())


def test_client_is_not_charged_for_the_turns_of_others() -> None:
    """Who asks for much is answered in many turns; what others do in between is not his."""
    charged_s: list[float] = []
    others_s = 0.05

    class Charged(Metered):
        def worked(self, worked_s: float) -> int:
            charged_s.append(worked_s)
            return 0

    async def in_turns(request: Request) -> Response:
        for _ in range(3):
            ended_s = perf_counter() + SHARE_S
            while perf_counter() < ended_s:
                pass
            asyncio.get_running_loop().call_soon(time.sleep, others_s)
            await turn()
        return heartbeat_response()

    async def scenario() -> None:
        apis = {ApiKey.HEARTBEAT: Api(0, 4, in_turns)}
        async with serving(apis, admission=OPEN._replace(meter=lambda request: Charged(0))) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            await client.receive()
            told, measured = charged_s
            assert told <= measured

    run(scenario())
