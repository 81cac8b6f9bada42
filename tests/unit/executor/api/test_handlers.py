"""Answers a broker gives by itself: no transactions, and a controller that cannot be reached."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.create_topics.v5.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v4.request import DeleteTopicsRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest

from executor.api.admin import AdminHandlers, refuse_forwarded
from executor.api.init_producer_id import ProducerIdHandler
from executor.control.broker_requests import BrokerRequests
from executor.control.controller_link import ControllerLink
from executor.control.forwarding import Forwarder
from executor.control.producer_id_blocks import ProducerIdBlocks
from sparklog.errors import ErrorCode
from sparklog.wire.apis import ApiKey, known_versions
from sparklog.wire.channel import Channel
from sparklog.wire.listener import Listener
from sparklog.wire.requests import Api, Handler, Refusal

MINUTE = timedelta(minutes=1)


def ask(api_key: ApiKey, handler: Handler, request: Any, refuse: Refusal | None = None) -> Any:
    """Return the answer a client gets to the request through a listener."""

    async def exchange() -> Any:
        row = Api(*known_versions(api_key), handler, refuse=refuse)
        listener = await Listener.start("127.0.0.1", 0, {api_key: row}, name="test")
        channel = await Channel.connect("127.0.0.1", listener.port, "test")
        try:
            return await channel.request(request)
        finally:
            channel.close()
            await listener.close()

    return asyncio.run(exchange())


@pytest.mark.parametrize(
    ("transactional_id", "error_code"),
    [("t", ErrorCode.transactional_id_authorization_failed), ("", ErrorCode.invalid_request)],
)
def test_init_producer_id_with_transactional_id_is_refused_for_good(
    transactional_id: str, error_code: ErrorCode
) -> None:
    """A retriable code would have the producer wait for a coordinator that does not exist."""

    def handle(request: Any) -> Any:
        link = ControllerLink("127.0.0.1", 1, "test")
        return ProducerIdHandler(ProducerIdBlocks(BrokerRequests(link, 1, lambda: 1))).handle(request)

    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout=MINUTE)
    response = ask(ApiKey.INIT_PRODUCER_ID, handle, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (error_code, -1, -1)


def unreachable(request: Any) -> Any:
    """Forward to a controller that is not there."""
    return AdminHandlers(Forwarder(ControllerLink("127.0.0.1", 1, "test"), 20)).handle(request)


def test_admin_request_without_a_controller_is_refused_topic_by_topic() -> None:
    """The client must get an answer in its own version, with a code that it retries."""
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
            for name in ("a", "b")
        ),
        timeout=MINUTE,
    )
    response = ask(ApiKey.CREATE_TOPICS, unreachable, request, refuse_forwarded)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.request_timed_out),
        ("b", ErrorCode.request_timed_out),
    ]
    delete = DeleteTopicsRequest(topic_names=("a",), timeout=MINUTE)
    response = ask(ApiKey.DELETE_TOPICS, unreachable, delete, refuse_forwarded)
    assert [(topic.name, topic.error_code) for topic in response.responses] == [
        ("a", ErrorCode.request_timed_out)
    ]
