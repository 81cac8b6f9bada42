"""Forwards a client's admin request to the controller as it came, and brings the answer back as it is.

The request travels inside an Envelope (KIP-590), header and all, so that the controller sees its version
and correlation id; the response in the answer is the client's, byte for byte.
"""

from ipaddress import ip_address
from typing import Any, Final

from kio.schema.envelope.v0 import EnvelopeRequest

from executor.control.controller_link import ControllerLink
from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.requests import RawResponse, Request

__all__ = ["Forwarder"]

ANONYMOUS_PRINCIPAL: Final = b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"
"""DefaultPrincipalData v0 of `User:ANONYMOUS`: version, two compact strings, no token, no tags."""


class Forwarder:
    """Sends envelopes over the controller link."""

    def __init__(self, link: ControllerLink, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms

    def forward(self, request: Request) -> "Forwarded":
        """Return what can be awaited for the controller's answer to `request`.

        The request's frame is copied before this returns, because it is valid no longer than that.
        """
        envelope = EnvelopeRequest(
            request_data=bytes(request.frame),
            request_principal=ANONYMOUS_PRINCIPAL,
            client_host_address=_address_bytes(request.connection.peer),
        )
        return Forwarded(self._link, envelope, self._timeout_ms)


class Forwarded:
    """A request on its way to the controller."""

    def __init__(self, link: ControllerLink, envelope: Any, timeout_ms: int) -> None:
        self._link = link
        self._envelope = envelope
        self._timeout_ms = timeout_ms

    async def answer(self) -> RawResponse:
        """Return the controller's answer.

        Raises:
            KafkaError: no answer within the time allowed, or the controller would not open the envelope.
        """
        response = await self._link.request(self._envelope, self._timeout_ms)
        if response.error_code is not ErrorCode.none or response.response_data is None:
            raise KafkaError(response.error_code, "the controller did not open the forwarded request")
        return RawResponse(bytes(response.response_data))


def _address_bytes(peer: str) -> bytes:
    host = peer.rpartition(":")[0].strip("[]")
    return ip_address(host).packed
