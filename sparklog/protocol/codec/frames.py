"""Headers and lengths around entities.

A frame is an int32 length, a header and an entity. A request's header is api_key int16, api_version int16,
correlation_id int32, client_id (always an int16 string, KIP-511), and from v2 on tagged fields; a response's
is correlation_id int32 and from v1 on tagged fields. Which header an API version has is written in its
entity; ApiVersions responses always have v0, so that a client can read one before it knows anything.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from kio.index import KioIndexError

from sparklog.protocol.codec.allowance import USUAL_TIMES, items_allowance_bytes
from sparklog.protocol.codec.apis import request_type, response_type
from sparklog.protocol.codec.encoded import EncodedBody, RawResponse
from sparklog.protocol.codec.encoder import Chunk, encode_entity, encode_entity_in_steps
from sparklog.protocol.codec.fixed.message import FixedRequest
from sparklog.protocol.codec.guard import (
    MalformedRequestError,
    decode_entity,
    decode_entity_in_steps,
    skip_tagged_fields,
)
from sparklog.protocol.codec.versions import downgrade, downgrade_in_steps
from sparklog.protocol.errors import ErrorCode, KafkaError

LENGTH: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_REQUEST_PREFIX: Final = struct.Struct(">ihhih")
_RESPONSE_PREFIX_V0: Final = struct.Struct(">ii")
_RESPONSE_PREFIX_V1: Final = struct.Struct(">iix")

_COPY_BELOW_BYTES: Final = 16_384

AT_ONCE_ITEMS_BYTES: Final = 256 << 10
"""Requests whose items count for more (about a thousand partitions) are read in steps."""

MIN_REQUEST_BYTES: Final = _REQUEST_HEADER.size
"""The shortest request: a header with a null client id, and no body."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class RequestCodec(NamedTuple):
    request_type: type[Any]
    response_type: type[Any]
    api_version: int
    request_header_flexible: bool
    response_header_flexible: bool
    memory_times: int = USUAL_TIMES
    """The peak memory of a request in multiples of its items' (`allowance`)."""


@cache
def request_codec(api_key: int, api_version: int) -> RequestCodec:
    """Return the codec of an API version.

    Raises:
        KafkaError: unsupported_version, there is no such API or version.
    """
    try:
        request, response = request_type(api_key, api_version), response_type(api_key, api_version)
    except KioIndexError as error:
        raise KafkaError(ErrorCode.unsupported_version, f"no API {api_key} v{api_version}") from error
    return RequestCodec(
        request_type=request,
        response_type=response,
        api_version=api_version,
        request_header_flexible=request.__header_schema__.__version__ >= 2,
        response_header_flexible=response.__header_schema__.__version__ >= 1,
    )


def header_bytes(codec: RequestCodec) -> int:
    """Return how long a response's header is, without tagged fields."""
    return LENGTH.size + 1 if codec.response_header_flexible else LENGTH.size


def read_request_header(frame: memoryview | bytes) -> tuple[RequestHeader, int]:
    """Return the header without its tagged fields, and the position after the client id.

    Raises:
        MalformedRequestError: the frame is too short, or the client id is no text.
    """
    if len(frame) < MIN_REQUEST_BYTES:
        raise MalformedRequestError(f"{len(frame)} bytes hold no request header")
    api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    position = MIN_REQUEST_BYTES
    if length < 0:
        return RequestHeader(api_key, api_version, correlation_id, None), position
    end = position + length
    if end > len(frame):
        raise MalformedRequestError(f"a client id of {length} bytes in a frame of {len(frame)}")
    try:
        client_id = str(frame[position:end], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequestError(f"the client id is not UTF-8: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), end


def read_request_body(codec: RequestCodec, frame: memoryview | bytes, position: int) -> Any:
    """Return the entity after the header; `position` is where the client id ended.

    Raises:
        MalformedRequestError: it is not such an entity. Bytes after it are ignored, as Kafka does.
        TooManyItemsError: read it by `read_request_body_in_steps`.
    """
    if codec.request_header_flexible:
        position = skip_tagged_fields(frame, position)
    body, _ = decode_entity(codec.request_type, frame, position, AT_ONCE_ITEMS_BYTES)
    return body


async def read_request_body_in_steps(codec: RequestCodec, frame: memoryview | bytes, position: int) -> Any:
    """Return the entity after the header; yield after each item of an array.

    Raises:
        MalformedRequestError: it is not such an entity.
        TooManyItemsError: its items and their answer would take more than one request may (`allowance`).
    """
    if codec.request_header_flexible:
        position = skip_tagged_fields(frame, position)
    allowance_bytes = items_allowance_bytes(codec.memory_times)
    body, _ = await decode_entity_in_steps(codec.request_type, frame, position, allowance_bytes)
    return body


async def decode_request_in_steps(
    frame: bytes | memoryview, memory_times: Callable[[int], int] = lambda _: USUAL_TIMES
) -> tuple[RequestHeader, Any]:
    """Return header and body of a request frame (without its length), as an Envelope carries one.

    `memory_times` of an API key bounds the items of the request (`allowance`).

    Raises:
        MalformedRequestError: not such a frame.
        TooManyItemsError: its items and their answer would take more than one request may (`allowance`).
        KafkaError: unsupported_version, when the API or version is unknown.
    """
    header, position = read_request_header(frame)
    codec = request_codec(header.api_key, header.api_version)
    codec = codec._replace(memory_times=memory_times(header.api_key))
    return header, (await read_request_body_in_steps(codec, frame, position))


def encode_response_frame(codec: RequestCodec, correlation_id: int, response: Any) -> list[Chunk]:
    """Return a whole response frame, length included, as chunks; `response` may be of any version."""
    if type(response) is RawResponse:
        return [LENGTH.pack(len(response.frame)) + response.frame]
    if type(response) is EncodedBody:
        return _response_frame(codec, correlation_id, [response.body])
    if type(response) is not codec.response_type:
        response = _of_version(codec, downgrade(response, codec.api_version))
    return _response_frame(codec, correlation_id, encode_entity(response))


async def encode_response_frame_in_steps(
    codec: RequestCodec, correlation_id: int, response: Any
) -> list[Chunk]:
    """Return what `encode_response_frame` does for an entity, and yield after each item of an array."""
    if type(response) is not codec.response_type:
        response = _of_version(codec, (await downgrade_in_steps(response, codec.api_version)))
    return _response_frame(codec, correlation_id, (await encode_entity_in_steps(response)))


def _of_version(codec: RequestCodec, response: Any) -> Any:
    if type(response) is not codec.response_type:
        raise TypeError(f"{codec.request_type.__name__} answered by {type(response).__name__}")
    return response


def _response_frame(codec: RequestCodec, correlation_id: int, chunks: list[Chunk]) -> list[Chunk]:
    body_bytes = 0
    for chunk in chunks:
        body_bytes += len(chunk)
    if codec.response_header_flexible:
        prefix = _RESPONSE_PREFIX_V1.pack(body_bytes + 5, correlation_id)
    else:
        prefix = _RESPONSE_PREFIX_V0.pack(body_bytes + 4, correlation_id)
    return _with_prefix(prefix, chunks)


def _with_prefix(prefix: bytes, chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks with `prefix` in front, in the same chunk if that costs little."""
    if chunks and type(first := chunks[0]) is bytes and len(first) < _COPY_BELOW_BYTES:
        chunks[0] = prefix + first
    else:
        chunks.insert(0, prefix)
    return chunks


async def encode_response_in_steps(header: RequestHeader, response: Any) -> bytes:
    """Return response header and body, without a length, in the version `header` asks for.

    Yields after each item of an array, where the body is not ready made.

    Raises:
        TypeError: the response holds a `Transferable`.
    """
    codec = request_codec(header.api_key, header.api_version)
    chunks: list[Any] = []
    if hasattr(response, "__version__"):
        chunks += await encode_response_frame_in_steps(codec, header.correlation_id, response)
    else:
        chunks += encode_response_frame(codec, header.correlation_id, response)
    return b"".join(chunks)[LENGTH.size :]


def request_encoder(client_id: str | None) -> Callable[[Any, int], list[Chunk]]:
    """Return a function (entity or fixed request, correlation_id) -> chunks of the frame, for one client id.

    Raises:
        ValueError: the client id is longer than 32,767 bytes.
    """
    encoded_id = b"" if client_id is None else client_id.encode()
    if len(encoded_id) > 0x7FFF:
        raise ValueError(f"a client id of {len(encoded_id)} bytes exceeds 32767")
    id_length = -1 if client_id is None else len(encoded_id)

    def encode(entity: Any, correlation_id: int) -> list[Chunk]:
        if isinstance(entity, FixedRequest):
            encoded = entity.encoded()
            if encoded is not None:
                size = MIN_REQUEST_BYTES + len(encoded_id) + len(encoded)
                prefix = _REQUEST_PREFIX.pack(
                    size, entity.api_key, entity.api_version, correlation_id, id_length
                )
                return [prefix + encoded_id + encoded]
            entity = entity.entity()
        api_key, api_version = int(entity.__api_key__), int(entity.__version__)
        end = b"\0" if entity.__header_schema__.__version__ >= 2 else b""
        chunks = encode_entity(entity)
        size = MIN_REQUEST_BYTES + len(encoded_id) + len(end) + sum(map(len, chunks))
        prefix = _REQUEST_PREFIX.pack(size, api_key, api_version, correlation_id, id_length)
        return _with_prefix(prefix + encoded_id + end, chunks)

    return encode


def decode_response(
    request: Any, frame: bytes | memoryview, *, records_in_place: bool = False
) -> tuple[int, Any]:
    """Return correlation id and entity of the response `frame` (without its length) to `request`.

    With `records_in_place` the entity's records are views of `frame`, which must be read-only then. The
    response to a fixed request has them in place always, if it is a fixed one.

    An ApiVersions response that says UNSUPPORTED_VERSION is in v0, in reply to any version (KIP-511).

    Raises:
        MalformedRequestError: not such a frame.
    """
    if len(frame) < LENGTH.size:
        raise MalformedRequestError(f"{len(frame)} bytes hold no response header")
    (correlation_id,) = LENGTH.unpack_from(frame)
    if isinstance(request, FixedRequest):
        response = request.read_response(frame)
        if response is not None:
            return correlation_id, response
        request = request.entity()
    codec = request_codec(int(request.__api_key__), int(request.__version__))
    position = LENGTH.size
    if codec.response_header_flexible:
        position = skip_tagged_fields(frame, position)
    entity_type = codec.response_type
    if _is_unsupported_version(codec, frame):
        entity_type = response_type(int(request.__api_key__), 0)
    entity, _ = decode_entity(entity_type, frame, position, records_in_place=records_in_place)
    return correlation_id, entity


_API_VERSIONS_KEY: Final = 18


def _is_unsupported_version(codec: RequestCodec, frame: bytes | memoryview) -> bool:
    if codec.request_type.__api_key__ != _API_VERSIONS_KEY or len(frame) < LENGTH.size + 2:
        return False
    error_code = int.from_bytes(frame[LENGTH.size : LENGTH.size + 2], "big", signed=True)
    return error_code == ErrorCode.unsupported_version.value
