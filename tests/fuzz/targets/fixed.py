"""Messages in fixed layouts: requests to brokers, and the response that followers read.

The first byte says which. A message that is read without its entity must be the one that the entity's reader
finds in the same bytes, and is written to the bytes of the entity.
"""

from collections.abc import Callable
from datetime import timedelta

from kio.schema.fetch.v17.request import FetchRequest

from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.fixed import fetch, produce
from sparklog.protocol.codec.fixed.message import FixedReader
from sparklog.protocol.codec.frames import (
    decode_response,
    encode_response_frame,
    read_request_body,
    read_request_header,
    request_codec,
)
from sparklog.protocol.errors import KafkaError
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of
from tests.fuzz.targets import Target

KINDS = ("request", "response")
_READERS: dict[int, Callable[[int], FixedReader | None]] = {
    ApiKey.PRODUCE: produce.request_reader,
    ApiKey.FETCH: fetch.request_reader,
}
_ASKED = FetchRequest(max_wait=timedelta(), min_bytes=0, topics=(), forgotten_topics_data=())


def target() -> Target:
    return take


def take(data: bytes) -> None:
    kind, frame = kind_of(data, len(KINDS))
    (take_response if kind else take_request)(frame)


def take_request(frame: bytes) -> bool:
    """Compare both readers of a request; return whether it has a fixed layout."""
    try:
        header, position = read_request_header(frame)
    except KafkaError:
        return False
    reader_of = _READERS.get(header.api_key)
    read = None if reader_of is None else reader_of(header.api_version)
    fixed = None if read is None else read(memoryview(frame), position)
    if fixed is None:
        return False
    body = read_request_body(request_codec(header.api_key, header.api_version), frame, position)
    expect(fixed.entity() == body, "the entity of these bytes is another one")
    encoded = fixed.encoded()
    expect(encoded in (None, b"\0" + encode_to_bytes(body)), "the entity is written to other bytes")
    return True


def take_response(frame: bytes) -> bool:
    """Compare both readers of a response; return whether it has a fixed layout."""
    fixed = fetch.read_response(memoryview(frame))
    if fixed is None:
        return False
    correlation_id, response = decode_response(_ASKED, frame)
    expect(fixed.entity() == response, "the entity of these bytes is another one")
    chunks = encode_response_frame(request_codec(1, fetch.FETCH_VERSION), correlation_id, response)
    expect(_joined(fixed.frame(correlation_id)) == _joined(chunks), "the entity is written to other bytes")
    return True


def _joined(chunks: list[bytes | memoryview]) -> bytes:
    return b"".join(chunks)
