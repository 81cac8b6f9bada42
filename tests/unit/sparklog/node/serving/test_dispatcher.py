"""The one path of every request: who asks, whether he may, what he is told to wait, and what it has cost."""

import asyncio
import io
import random
import time
import weakref
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from kio.serial import entity_writer

from sparklog.node.acls.acl import Principal
from sparklog.node.serving.admission import OPEN, Admission
from sparklog.node.serving.authentication import Authentication
from sparklog.node.serving.listener import Listener
from sparklog.node.serving.request_metrics import ApiMetrics
from sparklog.node.serving.requests import ANONYMOUS, NO_RESPONSE, Api, Deferred, Handler, Request, Response
from sparklog.node.serving.throttling import NO_THROTTLE, unthrottled
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type, response_type
from sparklog.protocol.codec.encoded import RawResponse
from sparklog.protocol.codec.fixed.produce import PartitionProduce, PartitionProduced, request_reader
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.sparklog.node.serving.entities import arbitrary_entity
from tests.unit.sparklog.node.serving.serving import (
    Metered,
    RawClient,
    answer_heartbeat,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)
from tests.unit.sparklog.protocol.codec.fixed.requests import produce

DENIED = KafkaError(ErrorCode.group_authorization_failed, "not yours")


def error_count(metrics: ApiMetrics) -> int:
    return sum(count for code, count in metrics.errors.items() if code is not ErrorCode.none)


def refuse_heartbeat(request: Request, error: KafkaError) -> Any:
    """Make Heartbeat's answer to a request that is refused; the generation comes back as throttle time."""
    return replace(heartbeat_response(request.body.generation_id), error_code=error.error_code)


async def ask(listener: Listener, request: Any) -> Any:
    """Return the answer, None if the connection was closed instead."""
    client = await RawClient.connect(listener)
    client.send(request)
    try:
        return await client.receive()
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    finally:
        client.close()


@pytest.mark.parametrize("throttle_ms", [0, 7])
def test_throttle_time_of_every_api_and_version_is_what_the_request_got(throttle_ms: int) -> None:
    """Handlers name none, and what is not throttled must look as if each of them had said so."""
    source = random.Random(11)
    throttle_time = timedelta(milliseconds=throttle_ms)
    answers: dict[tuple[int, int], Any] = {}

    async def scenario() -> None:
        apis = {
            api_key: Api(
                *known_versions(api_key), lambda request: answers[request.api_key, request.api_version]
            )
            for api_key in ApiKey
            if api_key not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        }
        admission = OPEN._replace(meter=lambda request: Metered(throttle_ms))
        async with serving(apis, admission=admission) as listener:
            for api_key, api in apis.items():
                for version in range(api.min_version, api.max_version + 1):
                    client = await RawClient.connect(listener)
                    answer_type = response_type(api_key, version)
                    expected = arbitrary_entity(answer_type, source)
                    if any(field.name == "throttle_time" for field in fields(answer_type)):
                        expected = replace(expected, throttle_time=throttle_time)
                        answer = replace(expected, throttle_time=NO_THROTTLE)
                    else:
                        answer = expected
                    answers[api_key, version] = answer
                    client.send(arbitrary_entity(request_type(api_key, version), source))
                    size = int.from_bytes(await client.reader.readexactly(4), "big")
                    frame = await client.reader.readexactly(size)
                    written = io.BytesIO()
                    entity_writer(answer_type)(written, expected)
                    header_bytes = 5 if answer_type.__header_schema__.__version__ else 4
                    assert frame[header_bytes:] == written.getvalue(), f"{api_key.name} v{version}"
                    client.close()

    run(scenario())


@pytest.mark.parametrize("meter", [None, Metered(0), Metered(7)], ids=["unlimited", "metered", "throttled"])
def test_fixed_response_is_measured_and_throttled_as_its_entity(meter: Metered | None) -> None:
    """Quotas and metrics must not depend on the way in which a request was read."""
    throttle_time = timedelta(milliseconds=0 if meter is None else meter.throttle_ms)
    taken: list[Any] = []

    def as_fixed(request: Request) -> Any:
        taken.append(request.body)
        return PartitionProduced(request.body, 5, None, 3)

    async def scenario(handler: Handler) -> None:
        apis = {ApiKey.PRODUCE: Api(3, 13, handler, fixed_reader=request_reader)}
        async with serving(apis, admission=OPEN._replace(meter=lambda request: meter)) as listener:
            answers = [await ask(listener, produce(version)) for version in range(3, 14)]
            metrics = listener.metrics.of("Produce")
            results.append((answers, dict(metrics.errors), dict(metrics.versions)))

    results: list[tuple[list[Any], dict[ErrorCode, int], dict[int, int]]] = []
    for handler in (as_fixed, lambda request: as_fixed(request).entity()):
        run(scenario(handler))
    assert {type(body) for body in taken} == {PartitionProduce}
    assert results[0] == results[1]
    assert {answer.throttle_time for answer in results[0][0]} == {throttle_time}


def test_answers_made_later_and_in_steps_say_the_throttle_time_too() -> None:
    """Whichever way an answer takes, it is told once."""
    deferred = Deferred()

    async def in_a_task(request: Request) -> Any:
        return answer()

    async def in_steps(request: Request) -> Response:
        await turn()
        return answer()

    def answer() -> Any:
        return unthrottled(type(heartbeat_response()), error_code=ErrorCode.none)

    async def told(handler: Callable[[Request], Any]) -> timedelta:
        admission = OPEN._replace(meter=lambda request: Metered(9))
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}, admission=admission) as listener:
            throttle_time: timedelta = (await ask(listener, heartbeat())).throttle_time
            return throttle_time

    async def scenario() -> None:
        asyncio.get_running_loop().call_later(0, lambda: deferred.complete(answer()))
        for handler in (in_a_task, in_steps, lambda request: deferred):
            assert await told(handler) == timedelta(milliseconds=9)

    run(scenario())


def test_request_knows_who_asks_by_which_listener_and_as_which_client() -> None:
    """Quotas and ACLs are kept by these."""
    seen: list[tuple[Principal, str, str | None]] = []

    def handle(request: Request) -> Any:
        seen.append((request.principal, request.listener_name, request.client_id))
        return answer_heartbeat(request)

    async def scenario(admission: Admission) -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}, admission=admission) as listener:
            await ask(listener, heartbeat())

    alice = Principal("User", "alice")
    run(scenario(OPEN))
    run(scenario(OPEN._replace(authentication=Authentication(principal=alice))))
    assert seen == [(ANONYMOUS, "test", "raw"), (alice, "test", "raw")]


def test_request_that_is_not_authorised_is_refused_before_its_handler() -> None:
    """What may not be asked must not be done; the client hears it in the words of the API."""
    handled: list[int] = []

    def handle(request: Request) -> Any:
        handled.append(request.body.generation_id)
        return answer_heartbeat(request)

    def authorize(request: Request, handler: Handler) -> Any:
        if request.body.generation_id == 5:
            raise DENIED
        return handler(request)

    async def scenario() -> None:
        admission = OPEN._replace(authorize=authorize)
        row = Api(0, 4, handle, refuse=refuse_heartbeat)
        async with serving({ApiKey.HEARTBEAT: row}, admission=admission) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(4), heartbeat(5), heartbeat(6))
            answers = [await client.receive() for _ in range(3)]
            assert [answer.error_code for answer in answers] == [
                ErrorCode.none,
                ErrorCode.group_authorization_failed,
                ErrorCode.none,
            ]
            assert handled == [4, 6]
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}, admission=admission) as listener:
            assert await ask(listener, heartbeat(5)) is None
        assert handled == [4, 6]

    run(scenario())


def raising(error: Exception) -> list[Callable[[Request], Any]]:
    """Return handlers that fail at once, in a task, in a step and behind one."""

    def at_once(request: Request) -> Any:
        raise error

    async def in_a_task(request: Request) -> Any:
        raise error

    async def in_a_step(request: Request) -> Response:
        await turn()
        raise error

    async def behind_a_step(request: Request) -> Response:
        await turn()
        return in_a_task(request)

    return [at_once, in_a_task, in_a_step, behind_a_step]


@pytest.mark.parametrize(
    ("error", "error_code"),
    [(DENIED, ErrorCode.group_authorization_failed), (OSError("full"), ErrorCode.kafka_storage_error)],
)
@pytest.mark.parametrize("way", range(4))
def test_error_that_escapes_a_handler_is_the_answer_where_the_api_has_one(
    way: int, error: Exception, error_code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """Later requests of the connection go on, and an operator is told once."""

    async def scenario() -> None:
        row = Api(0, 4, raising(error)[way], refuse=refuse_heartbeat)
        async with serving({ApiKey.HEARTBEAT: row}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(1), heartbeat(2))
            for generation_id in (1, 2):
                answer = await client.receive()
                assert (answer.error_code, answer.throttle_time.microseconds) == (
                    error_code,
                    1_000 * generation_id,
                )
            assert (
                listener.metrics.of("Heartbeat").count,
                error_count(listener.metrics.of("Heartbeat")),
            ) == (
                2,
                2,
            )

    run(scenario())
    assert caplog.text.count(f"HEARTBEAT v4 (correlation id 0): {error_code.name.upper()}") == 1


def test_error_of_a_mistake_closes_the_connection_even_where_the_api_has_an_answer() -> None:
    """A bug must not look to clients like something that they might cope with."""

    async def scenario() -> None:
        def also_wrong(request: Request, error: KafkaError) -> Any:
            raise ZeroDivisionError

        for handler, refuse in (
            (raising(ZeroDivisionError())[0], refuse_heartbeat),
            (raising(DENIED)[0], also_wrong),
        ):
            async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler, refuse=refuse)}) as listener:
                assert await ask(listener, heartbeat()) is None
                assert error_count(listener.metrics.of("Heartbeat")) == 1

    run(scenario())


def test_request_that_waits_for_its_answer_is_not_kept_meanwhile() -> None:
    """A broker has thousands of Fetch requests that wait, and some name ten thousand partitions."""

    class Large:
        pass

    async def scenario() -> None:
        deferred = Deferred()
        held: list[weakref.ref[Large]] = []

        def handle(request: Request) -> Deferred:
            request.body = Large()
            held.append(weakref.ref(request.body))
            return deferred

        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            await until(lambda: bool(held))
            assert held[0]() is None
            deferred.complete(heartbeat_response(3))
            assert (await client.receive()).throttle_time.microseconds == 3_000

    run(scenario())


def test_metrics_of_requests_answered_at_once_have_no_waiting() -> None:
    """Else nobody could tell a slow disk from a busy loop."""

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, answer_heartbeat)}) as listener:
            metrics = listener.metrics.of("Heartbeat")
            assert (metrics.count, metrics.total_s) == (0, 0)
            for _ in range(3):
                await ask(listener, heartbeat())
            assert (metrics.count, error_count(metrics)) == (3, 0)
            assert 0 < metrics.local_s == pytest.approx(metrics.total_s)

    run(scenario())


def test_metrics_of_requests_that_wait_say_so_whichever_way_they_do() -> None:
    """Followers, threads and other requests' turns are waited for without any handler's counting."""

    async def in_a_task(request: Request) -> Any:
        await asyncio.sleep(0.002)
        return heartbeat_response()

    async def in_steps(request: Request) -> Response:
        await held(asyncio.ensure_future(asyncio.sleep(0.002)))
        return heartbeat_response()

    def as_deferred(request: Request) -> Deferred:
        deferred = Deferred()
        asyncio.get_running_loop().call_later(0.002, deferred.complete, heartbeat_response())
        return deferred

    def as_deferred_steps(request: Request) -> Deferred:
        deferred = Deferred()
        asyncio.get_running_loop().call_later(0.002, lambda: deferred.complete(in_steps(request)))
        return deferred

    async def scenario() -> None:
        for handler in (in_a_task, in_steps, as_deferred, as_deferred_steps):
            async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
                await ask(listener, heartbeat())
                metrics = listener.metrics.of("Heartbeat")
                assert (metrics.count, error_count(metrics)) == (1, 0)
                assert metrics.remote_s >= 0.001
                assert 0 < metrics.local_s < metrics.total_s

    run(scenario())


def test_metrics_of_requests_that_wait_keep_what_was_worked_before_and_in_every_turn() -> None:
    """What a loop spends on an API is what an operator can make less."""
    work_s = 0.003  # more than a connection's share of a turn

    def work() -> None:
        until_s = time.perf_counter() + work_s
        while time.perf_counter() < until_s:
            pass

    async def in_steps(request: Request) -> Response:
        for _ in range(3):
            work()
            await turn()
        return heartbeat_response()

    def as_deferred(request: Request) -> Deferred:
        deferred = Deferred()
        for _ in range(3):
            work()
        asyncio.get_running_loop().call_later(0.001, deferred.complete, heartbeat_response())
        return deferred

    async def scenario() -> None:
        for handler in (in_steps, as_deferred):
            async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
                await ask(listener, heartbeat())
                metrics = listener.metrics.of("Heartbeat")
                assert 3 * work_s <= metrics.local_s < metrics.total_s

    run(scenario())


def test_metrics_count_an_answer_with_an_error_and_a_closed_connection_as_errors() -> None:
    """An API that fails for everybody must show where nobody reads logs."""

    def handle(request: Request) -> Any:
        match request.body.generation_id:
            case 0:
                return answer_heartbeat(request)
            case 1:
                return NO_RESPONSE
            case 2:
                return RawResponse(request.correlation_id.to_bytes(4, "big") + b"\0" * 8)
            case 3:
                return replace(heartbeat_response(), error_code=ErrorCode.unknown_member_id)
        raise DENIED

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handle)}) as listener:
            client = await RawClient.connect(listener)
            client.send(*(heartbeat(generation_id) for generation_id in range(5)))
            await client.reader.read()
            metrics = listener.metrics.of("Heartbeat")
            assert (metrics.count, error_count(metrics)) == (5, 2)

    run(scenario())
