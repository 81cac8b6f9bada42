"""Answers leave in the order of the requests, whoever gives them and whenever."""

import asyncio
import logging
import select
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest as ApiVersionsRequestV0
from kio.schema.api_versions.v3.request import ApiVersionsRequest as ApiVersionsRequestV3
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.heartbeat.v0.request import HeartbeatRequest as HeartbeatRequestV0

from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.limits.connection_quotas import ConnectionLimits, ConnectionQuotas
from sparklog.node.serving.listener import Listener, Service
from sparklog.node.serving.request_metrics import RequestMetrics
from sparklog.node.serving.requests import NO_RESPONSE, Api, Deferred, Features, Request
from sparklog.node.serving.routes import Routes
from sparklog.node.serving.socket_settings import SocketSettings
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoded import RawResponse
from sparklog.protocol.codec.frames import decode_request_in_steps, encode_response_in_steps
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.sparklog.node.serving.serving import (
    HEARTBEAT_ONLY,
    RawClient,
    answer_heartbeat,
    heartbeat,
    heartbeat_response,
    run,
    serving,
    until,
)


def test_pipelined_requests_are_answered_in_order() -> None:
    """Clients match answers by order; many requests in one packet are the rule under load."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            client = await RawClient.connect(listener)
            client.send(*(heartbeat(number) for number in range(1000)))
            answers = [await client.receive() for _ in range(1000)]
            assert [answer.throttle_time // timedelta(milliseconds=1) for answer in answers] == list(
                range(1000)
            )

    run(scenario())


def test_request_in_single_bytes_is_answered() -> None:
    """TCP gives no frames."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            client = await RawClient.connect(listener)
            for byte in client.frame(heartbeat(7)):
                client.writer.write(bytes((byte,)))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert (await client.receive()).throttle_time == timedelta(milliseconds=7)

    run(scenario())


def test_handler_is_given_the_request_as_it_came() -> None:
    """Forwarding needs the very bytes, and quotas and logs need who asked."""
    seen: list[Any] = []

    def handler(request: Request) -> Any:
        header, body = in_one_go(decode_request_in_steps(bytes(request.frame)))
        seen.append((request.api_key, request.api_version, request.client_id, request.connection.peer))
        assert (header.correlation_id, body) == (request.correlation_id, request.body)
        return answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(1))
            await client.receive()
            host, port = client.writer.get_extra_info("sockname")
            assert seen == [(ApiKey.HEARTBEAT, 4, "raw", f"{host}:{port}")]

    run(scenario())


def test_answer_of_the_newest_version_is_sent_in_the_version_asked_for() -> None:
    """Handlers know one version of their response."""

    async def scenario() -> None:
        async with serving(HEARTBEAT_ONLY) as listener:
            client = await RawClient.connect(listener)
            client.send(HeartbeatRequestV0(group_id="g", generation_id=0, member_id="m"))
            response = await client.receive()
            assert (response.__version__, response.error_code) == (0, ErrorCode.none)

    run(scenario())


def test_deferred_answers_completed_in_any_order_leave_in_the_order_of_requests() -> None:
    """An acks=all wait must not let a later answer of the same connection pass."""
    waiting: dict[int, Deferred] = {}

    def handler(request: Request) -> Any:
        number = request.body.generation_id
        if number % 2:
            return answer_heartbeat(request)
        waiting[number] = Deferred()
        return waiting[number]

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(*(heartbeat(number) for number in range(6)))
            await until(lambda: len(waiting) == 3)
            for number in (4, 0, 2):
                waiting[number].complete(heartbeat_response(number))
            answers = [await client.receive() for _ in range(6)]
            assert [answer.throttle_time // timedelta(milliseconds=1) for answer in answers] == list(range(6))

    run(scenario())


def test_deferred_answer_of_the_only_request_is_sent_by_the_call_that_completes_it() -> None:
    """A producer goes on while the broker does the rest of the turn, such as waking consumers."""
    waiting: list[Deferred] = []

    def handler(request: Request) -> Any:
        waiting.append(Deferred())
        return waiting[-1]

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(0))
            await until(lambda: len(waiting) == 1)
            waiting[0].complete(heartbeat_response(0))
            readable, _, _ = select.select([client.writer.get_extra_info("socket")], [], [], 0)
            assert readable
            await client.receive()

    run(scenario())


def test_deferred_completed_before_it_is_returned_is_answered_at_once() -> None:
    """A machine may decide immediately what usually takes a while."""

    def handler(request: Request) -> Any:
        deferred = Deferred()
        deferred.complete(answer_heartbeat(request))
        return deferred

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(1), heartbeat(2))
            await client.receive()
            assert (await client.receive()).throttle_time == timedelta(milliseconds=2)

    run(scenario())


def test_deferred_completed_twice_is_a_mistake() -> None:
    """The second answer would take the place of another request's."""
    deferred = Deferred()
    deferred.complete(heartbeat_response())
    with pytest.raises(RuntimeError):
        deferred.complete(heartbeat_response())


def test_lost_connection_abandons_its_deferred_answers_once() -> None:
    """Long polls of clients that are gone must not be kept until their time is up."""
    deferred_answers: list[Deferred] = []
    told: list[str] = []

    def handler(request: Request) -> Any:
        request.connection.on_close(lambda: told.append("closed"))
        deferred = Deferred(on_abandoned=lambda: told.append("abandoned"))
        deferred_answers.append(deferred)
        return deferred

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat())
            await until(lambda: bool(deferred_answers))
            client.close()
            await until(lambda: listener.connection_count == 0)
            assert told == ["abandoned", "closed"]
            assert deferred_answers[0].abandoned
            deferred_answers[0].complete(heartbeat_response())  # nobody is there, and nothing happens

    run(scenario())


def test_coroutine_answers_keep_the_order_and_may_read_the_frame() -> None:
    """Forwarded requests wait for the controller while later ones are answered."""
    released = asyncio.Event()

    async def handler(request: Request) -> Any:
        if request.body.generation_id == 0:
            await released.wait()
        header, body = in_one_go(decode_request_in_steps(request.frame))
        return RawResponse(
            in_one_go(encode_response_in_steps(header, heartbeat_response(body.generation_id)))
        )

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(0), heartbeat(1))
            await asyncio.sleep(0)
            released.set()
            assert (await client.receive()).throttle_time == timedelta(0)
            assert (await client.receive()).throttle_time == timedelta(milliseconds=1)

    run(scenario())


def test_request_without_an_answer_leaves_no_gap() -> None:
    """Produce with acks=0 has no response at all."""

    def handler(request: Request) -> Any:
        return NO_RESPONSE if request.body.generation_id == 1 else answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(0))
            await client.receive()
            unanswered = RawClient(client.reader, client.writer)
            unanswered.send(heartbeat(1))
            client.send(heartbeat(2))
            assert (await client.receive()).throttle_time == timedelta(milliseconds=2)

    run(scenario())


@pytest.mark.parametrize("kind", ["raises", "awaits and raises", "answers nonsense", "defers nonsense"])
def test_failing_handler_costs_its_connection_only(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bug in one handler must neither stop the broker nor leave a client waiting."""

    async def raise_later() -> Any:
        raise ZeroDivisionError("a bug")

    def handler(request: Request) -> Any:
        if request.body.generation_id == 0:
            return answer_heartbeat(request)
        if kind == "raises":
            raise ZeroDivisionError("a bug")
        if kind == "awaits and raises":
            return raise_later()
        if kind == "answers nonsense":
            return ApiVersionsRequestV0()
        deferred = Deferred()
        asyncio.get_running_loop().call_soon(deferred.complete, "nonsense")
        return deferred

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            bystander, victim = await RawClient.connect(listener), await RawClient.connect(listener)
            victim.send(heartbeat(1))
            assert await victim.closed_by_server()
            bystander.send(heartbeat(0))
            await bystander.receive()
            failures = [record for record in caplog.records if "HEARTBEAT v4" in record.getMessage()]
            assert [record.exc_info is not None for record in failures] == [True]

    with caplog.at_level(logging.ERROR):
        run(scenario())


@pytest.mark.parametrize("kind", ["raises", "awaits and raises"])
def test_handler_without_an_answer_to_refuse_with_closes_the_connection(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that may be wrong at any rate must not fill the log with tracebacks."""

    async def raise_later() -> Any:
        raise KafkaError(ErrorCode.not_leader_or_follower, "not here")

    def handler(request: Request) -> Any:
        if request.body.generation_id == 0:
            return answer_heartbeat(request)
        if kind == "awaits and raises":
            return raise_later()
        raise KafkaError(ErrorCode.not_leader_or_follower, "not here")

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(0, 4, handler)}) as listener:
            client = await RawClient.connect(listener)
            client.send(heartbeat(0), heartbeat(1))
            await client.receive()
            assert await client.closed_by_server()
            (refusal,) = (record for record in caplog.records if "HEARTBEAT v4" in record.getMessage())
            assert (refusal.levelno, refusal.exc_info) == (logging.WARNING, None)
            assert "NOT_LEADER_OR_FOLLOWER: not here" in refusal.getMessage()

    with caplog.at_level(logging.WARNING):
        run(scenario())


async def ask_api_versions(listener: Listener, request: Any) -> Any:
    client = await RawClient.connect(listener)
    client.send(request)
    response = await client.receive()
    client.send(heartbeat(3))  # the connection is kept whatever was answered
    assert (await client.receive()).throttle_time == timedelta(milliseconds=3)
    return response


APIS = {ApiKey.HEARTBEAT: Api(1, 4, answer_heartbeat), ApiKey.PRODUCE: Api(3, 13, answer_heartbeat)}
SOFTWARE: dict[str, Any] = {"client_software_name": "test-client", "client_software_version": "1.0"}


def test_api_versions_tells_the_table_with_produce_from_zero() -> None:
    """librdkafka will not produce unless Produce seems to begin at 0."""

    async def scenario() -> None:
        async with serving(APIS) as listener:
            for request in (ApiVersionsRequestV0(), ApiVersionsRequest(**SOFTWARE)):
                response = await ask_api_versions(listener, request)
                assert response.error_code is ErrorCode.none
                told = [(item.api_key, item.min_version, item.max_version) for item in response.api_keys]
                assert told == [(0, 0, 13), (12, 1, 4), (17, 0, 1), (18, 0, 4), (36, 0, 2)]

    run(scenario())


def test_api_versions_tells_features_and_spares_old_clients_those_from_zero() -> None:
    """Clients of v3 fail on a supported feature whose range begins at 0 (KIP-1022)."""
    features = Features(
        supported={"metadata.version": (7, 27), "group.version": (0, 1)},
        finalized={"metadata.version": 27},
        finalized_epoch=41,
    )

    async def scenario() -> None:
        async with serving(APIS, features=lambda: features) as listener:
            newest = await ask_api_versions(listener, ApiVersionsRequest(**SOFTWARE))
            older = await ask_api_versions(listener, ApiVersionsRequestV3(**SOFTWARE))
            names = [[feature.name for feature in told.supported_features] for told in (newest, older)]
            assert names == [["metadata.version", "group.version"], ["metadata.version"]]
            assert newest.finalized_features_epoch == 41
            (finalized,) = newest.finalized_features
            assert (finalized.name, finalized.max_version_level) == ("metadata.version", 27)

    run(scenario())


def test_api_versions_of_an_illegal_software_name_is_an_invalid_request() -> None:
    """Names go into metrics and logs, so Kafka refuses what could break them (KIP-511)."""

    async def scenario() -> None:
        async with serving(APIS) as listener:
            request = ApiVersionsRequest(client_software_name="-bad name-", client_software_version="1")
            response = await ask_api_versions(listener, request)
            assert (response.error_code, response.api_keys) == (ErrorCode.invalid_request, ())

    run(scenario())


def test_api_versions_of_a_client_that_calls_itself_by_many_characters_leaves_a_few_of_them() -> None:
    """They are kept as long as the connection is, whose client need not have logged in."""
    kept: list[tuple[str, str]] = []

    def answer(request: Request) -> Any:
        kept.append(request.connection.client_software)
        return answer_heartbeat(request)

    async def scenario() -> None:
        async with serving({ApiKey.HEARTBEAT: Api(1, 4, answer)}) as listener:
            request = ApiVersionsRequest(client_software_name="a" * 32_000, client_software_version="1" * 300)
            assert (await ask_api_versions(listener, request)).error_code is ErrorCode.none

    run(scenario())
    assert kept == [("a" * 256, "1" * 256)]


def test_api_versions_of_an_unknown_version_is_answered_in_v0_and_the_connection_kept() -> None:
    """A newer client asks in its own version first, and again in one it is told (KIP-511)."""

    async def scenario() -> None:
        async with serving(APIS) as listener:
            client = await RawClient.connect(listener)
            frame = bytearray(client.frame(ApiVersionsRequest(**SOFTWARE)))
            frame[6:8] = (99).to_bytes(2, "big")
            client.writer.write(bytes(frame))
            response = await client.receive()
            assert response.error_code is ErrorCode.unsupported_version
            assert response.__version__ == 0
            told = [(item.api_key, item.min_version, item.max_version) for item in response.api_keys]
            assert told == [(18, 0, 4)]
            client.send(ApiVersionsRequest(**SOFTWARE))
            assert (await client.receive()).error_code is ErrorCode.none

    run(scenario())


def test_table_with_a_version_that_cannot_be_written_is_refused() -> None:
    """It would be advertised, asked for, and fail."""

    async def scenario() -> None:
        with pytest.raises(ValueError, match="HEARTBEAT"):
            await Listener.start(
                "127.0.0.1", 0, Service(apis={ApiKey.HEARTBEAT: Api(0, 5, answer_heartbeat)})
            )

    run(scenario())


def test_load_makes_every_version_of_the_table_ready() -> None:
    """What is promised can be read and written, and a first request waits for no schema."""

    async def scenario() -> None:
        apis = {
            api_key: Api(*versions, lambda _: NO_RESPONSE) for api_key, versions in CLIENT_VERSIONS.items()
        }
        routes = Routes(apis, None, RequestMetrics())
        await routes.load()
        for api_key, versions in CLIENT_VERSIONS.items():
            for version in range(versions.min_version, versions.max_version + 1):
                route = routes.find(api_key, version)
                assert route.codec.api_version == version
                assert route is routes.find(api_key, version)

    asyncio.run(scenario())


def test_close_ends_every_connection_and_frees_the_port() -> None:
    """A cluster that is stopped leaves nothing behind."""
    cancelled: list[bool] = []

    async def forever(request: Request) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async def scenario() -> None:
        listener = await Listener.start("127.0.0.1", 0, Service(apis={ApiKey.HEARTBEAT: Api(0, 4, forever)}))
        client = await RawClient.connect(listener)
        client.send(heartbeat())
        await until(lambda: listener.connection_count == 1)
        await asyncio.sleep(0.01)
        await listener.close()
        assert await client.closed_by_server()
        assert listener.connection_count == 0
        again = await Listener.start("127.0.0.1", listener.port, Service(apis=HEARTBEAT_ONLY))
        await again.close()

    run(scenario())
    assert cancelled in ([True], [])


def test_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    """connections.max.idle.ms frees what clients forgot, but a long poll is no idleness."""
    held: list[Deferred] = []

    def handler(request: Request) -> Any:
        held.append(Deferred())
        return held[-1]

    async def scenario() -> None:
        apis = {ApiKey.HEARTBEAT: Api(0, 4, handler)}
        async with serving(apis, settings=SocketSettings(connections_max_idle_ms=100)) as listener:
            idle, waiting = await RawClient.connect(listener), await RawClient.connect(listener)
            waiting.send(heartbeat())
            assert await idle.closed_by_server()
            await until(lambda: listener.connection_count == 1)
            held[0].complete(heartbeat_response())
            await waiting.receive()

    run(scenario())


def test_connections_beyond_the_bound_are_refused_and_the_others_served() -> None:
    """max.connections keeps one host from taking every descriptor."""

    async def scenario() -> None:
        async with serving(
            HEARTBEAT_ONLY, quotas=ConnectionQuotas(ConnectionLimits(max_connections=2))
        ) as listener:
            clients: list[RawClient] = []
            for _ in range(2):
                clients.append(await RawClient.connect(listener))
            await until(lambda: listener.connection_count == 2)
            refused = await RawClient.connect(listener)
            assert await refused.closed_by_server()
            for client in clients:
                client.send(heartbeat())
                await client.receive()

    run(scenario())
