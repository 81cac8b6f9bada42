"""Answers a broker gives by itself when the controller cannot be reached."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.create_topics.v5.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v4.request import DeleteTopicsRequest
from kio.schema.envelope.v0.response import EnvelopeResponse

from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.forwarding import Forwarder
from sparklog.node.apis.table import ROWS
from sparklog.node.calling.channel import Channel
from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.node.serving.requests import Api, Handler
from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.controller_script import linked_controller

MINUTE = timedelta(minutes=1)


def ask(api_key: ApiKey, handler: Handler, request: Any) -> Any:
    """Return the answer a client gets to the request through a listener."""

    async def exchange() -> Any:
        row = Api(*known_versions(api_key), handler, refuse=ROWS[api_key].refuse)
        listener = await Listener.start(
            "127.0.0.1", 0, Service(apis={api_key: row}), ListenerIdentity(name="test")
        )
        channel = await Channel.connect("127.0.0.1", listener.port, "test")
        try:
            return await channel.request(request)
        finally:
            channel.close()
            await listener.close()

    return asyncio.run(exchange())


def unreachable(request: Any) -> Any:
    """Forward to a controller that is not there."""
    return Forwarder(ControllerLink("127.0.0.1", 1, "test"), 20).forward(request)


def test_admin_request_without_a_controller_is_refused_topic_by_topic() -> None:
    """The client must get an answer in its own version, with a code that it retries."""
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
            for name in ("a", "b")
        ),
        timeout=MINUTE,
    )
    response = ask(ApiKey.CREATE_TOPICS, unreachable, request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.request_timed_out),
        ("b", ErrorCode.request_timed_out),
    ]
    delete = DeleteTopicsRequest(topic_names=("a",), timeout=MINUTE)
    response = ask(ApiKey.DELETE_TOPICS, unreachable, delete)
    assert [(topic.name, topic.error_code) for topic in response.responses] == [
        ("a", ErrorCode.request_timed_out)
    ]


@pytest.mark.parametrize(
    ("of_envelope", "told"),
    [
        (ErrorCode.cluster_authorization_failed, ErrorCode.unknown_server_error),
        (ErrorCode.principal_deserialization_failure, ErrorCode.unknown_server_error),
        (ErrorCode.not_controller, ErrorCode.request_timed_out),
    ],
)
def test_forwarded_request_that_the_controller_does_not_open_is_tried_again_only_if_that_helps(
    of_envelope: ErrorCode, told: ErrorCode
) -> None:
    """A driver to whom this broker is a stranger will never open it: its clients are not to ask for ever."""
    refusal = EnvelopeResponse(response_data=None, error_code=of_envelope)

    def handle(request: Any) -> Any:
        async def forwarded() -> Any:
            async with linked_controller({ApiKey.ENVELOPE: lambda _: refusal}) as (_, link):
                return await Forwarder(link, 500).forward(request)

        request.frame = memoryview(bytes(request.frame))  # as the controller is waited for before it is used
        return forwarded()

    delete = DeleteTopicsRequest(topic_names=("a",), timeout=MINUTE)
    (row,) = ask(ApiKey.DELETE_TOPICS, handle, delete).responses
    assert row.error_code is told
