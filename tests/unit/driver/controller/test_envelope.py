"""What a broker is told of a client's request that it has passed on, and that fails."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_topics.v7 import CreateTopicsRequest
from kio.schema.envelope.v0 import EnvelopeRequest

from sparklog.driver.controller.api.envelope import EnvelopeHandler
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.frames import request_encoder
from sparklog.protocol.codec.steps import in_one_go, turn
from sparklog.protocol.errors import ErrorCode, KafkaError

ANONYMOUS = b"\0\0\5User\nANONYMOUS\0\0"


def at_once(error: Exception) -> Any:
    raise error


async def in_steps(error: Exception) -> Any:
    await turn()
    raise error


def later(error: Exception) -> Any:
    deferred = Deferred()
    deferred.complete(in_steps(error))
    return deferred


def later_in_steps_that_lead_to_steps(error: Exception) -> Any:
    """As a change of so many topics that it has parts, of which some rows are a guard's."""

    async def guarded() -> Any:
        await turn()
        return in_steps(error)

    deferred = Deferred()
    deferred.complete(guarded())
    return deferred


@pytest.mark.parametrize("fail", [at_once, in_steps, later, later_in_steps_that_lead_to_steps])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KafkaError(ErrorCode.not_controller, "not yet"), ErrorCode.not_controller),
        (ZeroDivisionError(), ErrorCode.unknown_server_error),
    ],
)
def test_forwarded_request_that_fails_is_answered(fail: Any, error: Exception, told: ErrorCode) -> None:
    """Its connection is that of all clients of a broker, who would lose their answers."""
    body = CreateTopicsRequest(topics=(), timeout=timedelta(seconds=1), validate_only=False)
    frame = b"".join(map(bytes, request_encoder("client")(body, 1)))[4:]
    envelope = EnvelopeRequest(
        request_data=frame, request_principal=ANONYMOUS, client_host_address=b"\x7f\0\0\1"
    )
    peer: Any = SimpleNamespace(peer="127.0.0.1:1", accepted_ms=0, client_software=("", ""), closed=False)
    request = Request(ApiKey.ENVELOPE, 0, 1, "broker", envelope, memoryview(b""), peer, "controller")
    answer = in_one_go(EnvelopeHandler({ApiKey.CREATE_TOPICS: lambda _: fail(error)}).handle(request))
    assert (answer.error_code, answer.response_data) == (told, None)
