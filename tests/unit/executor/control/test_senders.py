"""What a broker asks for its clients' sake must not hold up what it asks for itself."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse

from sparklog.executor.control.senders import Senders
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import heartbeat
from tests.unit.executor.brokers import until
from tests.unit.executor.controller_script import linked_controller


def beaten(_: Request) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        is_caught_up=True,
        is_fenced=False,
        should_shut_down=False,
    )


@pytest.mark.parametrize("asked", [ApiKey.CREATE_TOPICS, ApiKey.ENVELOPE])
def test_heartbeat_is_answered_while_what_a_client_asked_for_is_under_way(asked: ApiKey) -> None:
    """A driver that has just been elected lets clients wait; the broker's lease ran out meanwhile."""

    async def scenario() -> None:
        held: list[Request] = []

        def hold(request: Request) -> Deferred:
            held.append(request)
            return Deferred()

        async with linked_controller({asked: hold, ApiKey.BROKER_HEARTBEAT: beaten}) as (_, link):
            senders = Senders(link, 1, lambda: 5, BrokerConfig())
            tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(senders.run())]
            if asked == ApiKey.CREATE_TOPICS:
                senders.topic_creation.create(["t"])
            else:
                client: Any = SimpleNamespace(peer="127.0.0.1:1")
                frame = memoryview(b"a client's")
                request = Request(ApiKey.CREATE_TOPICS, 7, 1, None, None, frame, client, "PLAINTEXT")
                tasks.append(asyncio.ensure_future(senders.forwarder.forward(request)))
            await until(lambda: len(held) == 1, "the request at the controller")
            async with asyncio.timeout(10):
                reply = await link.request(heartbeat(1, 5, 0))
            assert reply.error_code is ErrorCode.none
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await senders.close()

    asyncio.run(scenario())
