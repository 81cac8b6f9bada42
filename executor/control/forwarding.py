"""Forwards a client's admin request to the controller as it came, and brings the answer back as it is.

The request travels inside an Envelope (KIP-590), header and all, so that the controller sees its version
and correlation id; the response in the answer is the client's, byte for byte.
"""

from ipaddress import ip_address

from kio.schema.envelope.v0 import EnvelopeRequest

from executor.control.controller_link import ControllerLink
from sparklog.acls.acl import Principal
from sparklog.errors import ErrorCode, KafkaError
from sparklog.wire.encoder import encode_varint
from sparklog.wire.requests import RawResponse, Request

__all__ = ["Forwarder", "envelope"]


class Forwarder:
    """Sends envelopes over the controller link."""

    def __init__(self, link: ControllerLink, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms

    async def forward(self, request: Request) -> RawResponse:
        """Return the controller's answer.

        Raises:
            KafkaError: no answer within the time allowed, or the controller would not open the envelope.
        """
        response = await self._link.request(envelope(request), self._timeout_ms)
        if response.error_code is not ErrorCode.none or response.response_data is None:
            raise KafkaError(response.error_code, "the controller did not open the forwarded request")
        return RawResponse(bytes(response.response_data))


def envelope(request: Request, frame: bytes | None = None) -> EnvelopeRequest:
    """Return the Envelope around a request as it came, or around another `frame` on behalf of who made it."""
    return EnvelopeRequest(
        request_data=bytes(request.frame) if frame is None else frame,
        request_principal=_principal_bytes(request.principal),
        client_host_address=_address_bytes(request.connection.peer),
    )


def _principal_bytes(principal: Principal) -> bytes:
    """Return DefaultPrincipalData v0: the version, two compact strings, no token, no tags.

    >>> _principal_bytes(Principal("User", "ANONYMOUS"))
    b'\\x00\\x00\\x05User\\nANONYMOUS\\x00\\x00'
    """
    names = [part.encode() for part in principal]
    return b"\0\0" + b"".join(encode_varint(len(name) + 1) + name for name in names) + b"\0\0"


def _address_bytes(peer: str) -> bytes:
    host = peer.rpartition(":")[0].strip("[]")
    return ip_address(host).packed
