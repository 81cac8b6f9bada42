"""Forwards a client's admin request to the controller as it came, and brings the answer back as it is.

The request travels inside an Envelope (KIP-590), header and all, so that the controller sees its version
and correlation id; the response in the answer is the client's, byte for byte.
"""

import logging
from ipaddress import ip_address
from typing import Final

from kio.schema.envelope.v0 import EnvelopeRequest

from executor.control.controller_link import ControllerLink, ControllerUnreachableError
from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.principal_data import encode_principal
from sparklog.wire.requests import RawResponse, Request

__all__ = ["Forwarder", "envelope"]

logger = logging.getLogger(__name__)

_NOT_YET: Final = frozenset({ErrorCode.not_controller, ErrorCode.request_timed_out})


class Forwarder:
    """Sends envelopes over the controller link."""

    def __init__(self, link: ControllerLink, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms

    async def forward(self, request: Request) -> RawResponse:
        """Return the controller's answer.

        Raises:
            ControllerUnreachableError: no answer within the time allowed, or from one who does not lead yet.
            KafkaError: UNKNOWN_SERVER_ERROR: the controller would not open the envelope, which is not the
                client's fault.
        """
        response = await self._link.request(envelope(request), self._timeout_ms)
        error_code = response.error_code
        if error_code in _NOT_YET:
            raise ControllerUnreachableError(f"the controller does not lead: {error_code.name}")
        if error_code is not ErrorCode.none or response.response_data is None:
            logger.warning(
                "A forwarded %s is refused by the controller: %s", request.api_key.name, error_code.name
            )
            raise KafkaError(ErrorCode.unknown_server_error, "the controller refuses what is forwarded")
        return RawResponse(bytes(response.response_data))


def envelope(request: Request, frame: bytes | None = None) -> EnvelopeRequest:
    """Return the Envelope around a request as it came, or around another `frame` on behalf of who made it."""
    return EnvelopeRequest(
        request_data=bytes(request.frame) if frame is None else frame,
        request_principal=encode_principal(request.principal),
        client_host_address=_address_bytes(request.connection.peer),
    )


def _address_bytes(peer: str) -> bytes:
    host = peer.rpartition(":")[0].strip("[]")
    return ip_address(host).packed
