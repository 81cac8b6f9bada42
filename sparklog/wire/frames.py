"""Headers and lengths around entities (skeleton, being written)."""

from typing import Any, NamedTuple


class RequestHeader(NamedTuple):
    """The header of a request, v1 and v2 alike."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request(frame: bytes | memoryview) -> tuple[RequestHeader, Any]:
    """Return header and body of a request frame (without its length), as an Envelope carries one.

    Raises:
        MalformedRequestError: not such a frame.
        KafkaError: unsupported_version, when kio does not know the API or version.
    """
    raise NotImplementedError


def encode_response(header: RequestHeader, entity: Any) -> bytes:
    """Return response header and body (without a length) in the version `header` asks for, downgrading `entity`."""
    raise NotImplementedError


def encode_request(entity: Any, correlation_id: int, client_id: str | None) -> bytes:
    """Return a request frame, length included."""
    raise NotImplementedError
