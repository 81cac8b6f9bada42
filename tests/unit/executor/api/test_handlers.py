"""Answers a broker gives by itself when the controller cannot be reached."""

import asyncio
from datetime import timedelta
from typing import Any

from kio.schema.create_topics.v5.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v4.request import DeleteTopicsRequest

from executor.api.admin import AdminHandlers, refuse_forwarded
from executor.control.controller_link import ControllerLink
from executor.control.forwarding import Forwarder
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
