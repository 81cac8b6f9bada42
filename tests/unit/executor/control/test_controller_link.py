"""The connection to the controller: found again, and errors in time when nobody answers."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse

from sparklog.executor.control.controller_link import ControllerLink, ControllerUnreachableError
from sparklog.executor.control.senders import BrokerRequests, ProducerIdBlocks
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import until
from tests.unit.executor.controller_script import linked_controller, scripted_controller

NO_TIME = timedelta(0)


def test_link_reconnects_and_requests_wait_for_the_connection() -> None:
    """A controller that comes back is found again without anybody doing anything."""

    async def scenario() -> None:
        def allocate(request: Request) -> Any:
            return AllocateProducerIdsResponse(
                throttle_time=NO_TIME, error_code=ErrorCode.none, producer_id_start=5, producer_id_len=1
            )

        script = {ApiKey.ALLOCATE_PRODUCER_IDS: allocate}
        async with linked_controller(script) as (listener, link):
            assert await ProducerIdBlocks(BrokerRequests(link, 1, lambda: 1)).next(5_000) == 5
            await listener.close()
            with pytest.raises(ControllerUnreachableError):
                await ProducerIdBlocks(BrokerRequests(link, 1, lambda: 1)).next(100)
            assert not link.is_connected
            waiting = asyncio.create_task(ProducerIdBlocks(BrokerRequests(link, 1, lambda: 1)).next(10_000))
            async with scripted_controller(script, listener.port):
                assert await waiting == 5
                assert link.unreachable_ms == 0

    asyncio.run(scenario())


def test_link_that_is_lost_calls_those_who_wait_for_that() -> None:
    """A broker that stops looks for the end of its cluster, not only at its next heartbeat."""

    async def scenario() -> None:
        lost: list[bool] = []
        async with linked_controller({}) as (listener, link):
            link.when_lost(lambda: lost.append(link.is_connected))
            await until(lambda: link.is_connected, "a connection")
            await listener.close()
            await until(lambda: bool(lost), "a call")
            assert lost == [False]

    asyncio.run(scenario())


def test_link_without_a_controller_fails_requests_in_the_time_they_have() -> None:
    """Forwarded requests must be answered even if the driver is gone."""

    async def scenario() -> None:
        link = ControllerLink("127.0.0.1", 1, "broker-1")
        running = asyncio.create_task(link.run())
        with pytest.raises(ControllerUnreachableError) as raised:
            await ProducerIdBlocks(BrokerRequests(link, 1, lambda: 1)).next(150)
        assert raised.value.error_code is ErrorCode.request_timed_out
        assert link.unreachable_ms >= 100
        assert link.is_refused
        running.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("may_be_idle", "is_asked", "warns"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_link_warns_of_a_lost_connection_unless_it_was_closed_for_being_idle(
    may_be_idle: bool, is_asked: bool, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller closes one that nobody needs every connections.max.idle.ms, and each broker warned."""

    async def scenario() -> None:
        held: list[Request] = []

        def hold(request: Request) -> Deferred:
            held.append(request)
            return Deferred()

        async with scripted_controller({ApiKey.ALLOCATE_PRODUCER_IDS: hold}) as listener:
            link = ControllerLink("127.0.0.1", listener.port, "broker-1")
            if may_be_idle:
                link = link.sibling("broker-1", "controller")
            running = asyncio.create_task(link.run())
            await until(lambda: link.is_connected, "the connection")
            if is_asked:
                asking = asyncio.create_task(ProducerIdBlocks(BrokerRequests(link, 1, lambda: 1)).next(500))
                await until(lambda: len(held) == 1, "the request at the controller")
            caplog.clear()
            await listener.close()
            await until(lambda: not link.is_connected and link.unreachable_ms > 0, "the loss was noticed")
            tasks = [running, asking] if is_asked else [running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
    lost = [record for record in caplog.records if "is lost" in record.getMessage()]
    assert [record.levelname for record in lost if record.levelname != "DEBUG"] == ["WARNING"] * warns


def test_link_warns_once_of_connections_that_end_before_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """A controller that starts on a busy machine takes connections that it closes, ten a second."""

    async def scenario() -> None:
        taken = 0

        def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal taken
            taken += 1
            writer.close()

        async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            running = asyncio.create_task(ControllerLink("127.0.0.1", port, "broker-1").run())
            await until(lambda: taken >= 4, "four connections")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
    lost = [record for record in caplog.records if "is lost" in record.getMessage()]
    assert [record.levelname for record in lost if record.levelname != "DEBUG"] == ["WARNING"]
