"""Forwards a client's admin request to the controller unchanged, and returns its answer unchanged.

The request travels inside an Envelope (KIP-590), header and all, so that the controller sees its version and
correlation id; the response in the answer is the client's, byte for byte. The broker itself refuses only if
the controller cannot be reached: by the row's refusal with REQUEST_TIMED_OUT, after which clients try again.

A request whose connection is lost, or whose controller does not lead, is sent again until it times out. The
controller may have carried it out by then: a created topic is answered with TOPIC_ALREADY_EXISTS.

Source: Kafka's ForwardingManager and NodeToControllerRequestThread.
"""

import asyncio
import logging
from ipaddress import ip_address
from typing import Final

from kio.schema.envelope.v0 import EnvelopeRequest, EnvelopeResponse

from sparklog.executor.control.controller_link import ControllerLink, ControllerUnreachableError
from sparklog.node.serving.principal_data import encode_principal
from sparklog.node.serving.requests import Request
from sparklog.node.serving.turns import in_task
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoded import RawResponse
from sparklog.protocol.errors import ErrorCode, KafkaError

FORWARDING_TIMEOUT_MS: Final = 60_000
"""As in Kafka's broker."""

logger = logging.getLogger(__name__)

_NOT_YET: Final = frozenset({ErrorCode.not_controller, ErrorCode.request_timed_out})
_RETRY_BACKOFF_S: Final = 0.05
"""Backoff of the network client of Kafka's broker."""


class Forwarder:
    def __init__(self, link: ControllerLink, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms

    async def forward(self, request: Request) -> RawResponse:
        """Return the controller's answer.

        Raises:
            ControllerUnreachableError: no answer of a leading controller within the timeout.
            KafkaError: UNKNOWN_SERVER_ERROR: the controller refuses the envelope, which is not the client's
                fault.
        """
        # In a task, as its time-out and those of the link ask for; the frame is the request's until then.
        response = await in_task(self._answer_to(request.api_key, envelope(request)))
        error_code = response.error_code
        if error_code is not ErrorCode.none or response.response_data is None:
            logger.warning("The controller refuses a forwarded %s: %s", request.api_key.name, error_code.name)
            raise KafkaError(ErrorCode.unknown_server_error, "the controller refuses what is forwarded")
        return RawResponse(bytes(response.response_data))

    async def _answer_to(self, api_key: ApiKey, asked: EnvelopeRequest) -> EnvelopeResponse:
        failure = "there is no connection to the controller"
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while True:
                    try:
                        response: EnvelopeResponse = await self._link.request(asked)
                    except ControllerUnreachableError as error:
                        failure = error.message
                    else:
                        if response.error_code not in _NOT_YET:
                            return response
                        failure = f"the controller does not lead: {response.error_code.name}"
                    await asyncio.sleep(_RETRY_BACKOFF_S)
        except TimeoutError:
            raise ControllerUnreachableError(
                f"{api_key.name} was not answered within {self._timeout_ms} ms: {failure}"
            ) from None


def envelope(request: Request, frame: bytes | None = None) -> EnvelopeRequest:
    """Return the Envelope around a request, or around another `frame` on behalf of the same client."""
    return EnvelopeRequest(
        request_data=bytes(request.frame) if frame is None else frame,
        request_principal=encode_principal(request.principal),
        client_host_address=_address_bytes(request.connection.peer),
    )


def _address_bytes(peer: str) -> bytes:
    host = peer.rpartition(":")[0].strip("[]")
    return ip_address(host).packed
