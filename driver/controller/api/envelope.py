"""Envelope: a client's request that a broker has forwarded (KIP-590), answered by the API's own handler."""

import logging
from collections.abc import Mapping
from datetime import timedelta

from kio.schema.envelope.v0.response import EnvelopeResponse

from sparklog.node.acls.host import shown_address
from sparklog.node.apis.table import memory_times
from sparklog.node.serving.principal_data import decode_principal
from sparklog.node.serving.requests import Handler, Request, Response, Throttled
from sparklog.node.serving.throttling import throttled
from sparklog.node.serving.turns import response_of
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.frames import (
    RequestHeader,
    decode_request_in_steps,
    encode_response_in_steps,
    request_codec,
)
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class EnvelopeHandler:
    def __init__(self, forwardable: Mapping[ApiKey, Handler]) -> None:
        """`forwardable` has the handlers of the APIs that may be forwarded."""
        self._forwardable = forwardable

    async def handle(self, request: Request) -> Response:
        """Return the response to the request inside, encoded in that request's version."""
        try:
            header, body = await decode_request_in_steps(request.body.request_data, memory_times)
            if header.api_key not in self._forwardable:
                raise KafkaError(ErrorCode.invalid_request, f"API {header.api_key} may not be forwarded")
            principal = decode_principal(request.body.request_principal)
            host = _host(request.body.client_host_address)
        except KafkaError as error:
            logger.warning("A forwarded request from %s is refused: %s", request.connection.peer, error)
            return EnvelopeResponse(response_data=None, error_code=error.error_code)
        api_key = ApiKey(header.api_key)
        forwarded = Request(
            api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            body,
            memoryview(request.body.request_data),
            request.connection,
            request.listener_name,
        )
        forwarded.principal = principal
        forwarded.host = host
        try:
            reply = await response_of(self._forwardable[api_key](forwarded))
            if isinstance(reply, Throttled):
                # The broker to which the client is connected throttles it.
                codec = request_codec(header.api_key, header.api_version)
                reply = throttled(codec, reply.response, timedelta(milliseconds=reply.throttle_ms))
            frame = await encode_response_in_steps(header, reply)
        except Exception as error:
            return _failed(header, error)
        return EnvelopeResponse(response_data=frame, error_code=ErrorCode.none)


def _failed(header: RequestHeader, error: Exception) -> EnvelopeResponse:
    """Return an error response: a closed connection would cost the broker's other clients theirs."""
    name = ApiKey(header.api_key).name
    if isinstance(error, KafkaError):
        logger.warning("A forwarded %s is refused: %s", name, error)
        return EnvelopeResponse(response_data=None, error_code=error.error_code)
    logger.error("A forwarded %s failed", name, exc_info=error)
    return EnvelopeResponse(response_data=None, error_code=ErrorCode.unknown_server_error)


def _host(address: bytes) -> str:
    """Return the host from which the client connected to the broker.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    try:
        return shown_address(address)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.invalid_request, f"the client's address cannot be read: {error}"
        ) from error
