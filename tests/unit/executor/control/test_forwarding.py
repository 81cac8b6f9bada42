"""Clients' requests on their way to a controller that goes, or does not lead yet."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.envelope.v0.response import EnvelopeResponse

from sparklog.executor.control.controller_link import ControllerUnreachableError
from sparklog.executor.control.forwarding import Forwarder
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import until
from tests.unit.executor.controller_script import linked_controller, scripted_controller

ANSWER = EnvelopeResponse(response_data=b"the client's answer", error_code=ErrorCode.none)
NOT_LEADING = EnvelopeResponse(response_data=None, error_code=ErrorCode.not_controller)


def of_client() -> Request:
    client: Any = SimpleNamespace(peer="127.0.0.1:1")
    return Request(ApiKey.CREATE_TOPICS, 7, 1, None, None, memoryview(b"as it came"), client, "PLAINTEXT")


def test_request_whose_connection_is_lost_is_sent_again_and_answered() -> None:
    """The client was refused though the controller had done, or would do in a moment, what it asked."""

    async def scenario() -> None:
        held: list[Request] = []

        def hold(request: Request) -> Deferred:
            held.append(request)
            return Deferred()

        async with linked_controller({ApiKey.ENVELOPE: hold}) as (listener, link):
            forwarding = asyncio.ensure_future(Forwarder(link, 30_000).forward(of_client()))
            await until(lambda: len(held) == 1, "the request at the controller")
            await listener.close()

            def answer(request: Request) -> EnvelopeResponse:
                held.append(request)
                return ANSWER

            async with scripted_controller({ApiKey.ENVELOPE: answer}, listener.port):
                assert (await forwarding).frame == ANSWER.response_data
            assert [bytes(request.body.request_data) for request in held] == [b"as it came"] * 2

    asyncio.run(scenario())


def test_request_to_a_controller_that_does_not_lead_yet_is_sent_again_and_answered() -> None:
    """Another driver takes over within a second, and clients need not see that."""

    async def scenario() -> None:
        answers = [NOT_LEADING, NOT_LEADING, ANSWER]
        async with linked_controller({ApiKey.ENVELOPE: lambda _: answers.pop(0)}) as (_, link):
            assert (await Forwarder(link, 30_000).forward(of_client())).frame == ANSWER.response_data

    asyncio.run(scenario())


def test_request_to_a_controller_that_never_leads_is_refused_when_its_time_is_up() -> None:
    """Clients retry REQUEST_TIMED_OUT, and the message says what it was."""

    async def scenario() -> None:
        async with linked_controller({ApiKey.ENVELOPE: lambda _: NOT_LEADING}) as (_, link):
            with pytest.raises(ControllerUnreachableError, match=r"CREATE_TOPICS.* 200 ms: .*not_controller"):
                await Forwarder(link, 200).forward(of_client())

    asyncio.run(scenario())
