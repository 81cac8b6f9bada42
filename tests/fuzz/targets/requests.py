"""Request frames of every API and version, by the functions that the dispatcher reads them with.

What is read is written again, and must be read to the same; whoever reads in steps, and whoever reads in one
go, must agree, be it about a refusal.
"""

from typing import Any

from sparklog.protocol.codec.encoder import encode_entity_in_steps, encode_to_bytes
from sparklog.protocol.codec.frames import (
    RequestHeader,
    decode_request_in_steps,
    read_request_body,
    read_request_header,
    request_codec,
)
from sparklog.protocol.codec.guard import TooManyItemsError, check_entity, decode_entity
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import KafkaError
from tests.fuzz.finding import expect
from tests.fuzz.targets import Target


def target() -> Target:
    return take


def take(data: bytes) -> None:
    frame = memoryview(data)
    try:
        header, position = read_request_header(frame)
        codec = request_codec(header.api_key, header.api_version)
    except KafkaError as error:
        expect(_read_in_steps(frame) == error.error_code, "an Envelope's reader takes another header")
        return
    try:
        body = read_request_body(codec, frame, position)
    except TooManyItemsError:
        _read_in_steps(frame)
        return
    except KafkaError as error:
        expect(_read_in_steps(frame) == error.error_code, f"only in one go it is refused: {error}")
        return
    in_steps = _read_in_steps(frame)
    expect(isinstance(in_steps, tuple), f"only in steps it is refused: {in_steps}")
    expect(in_steps[0] == header, "two headers")
    written = check_written_again(body)
    expect(encode_to_bytes(in_steps[1]) == written, "in steps it is another one")


def check_written_again(entity: Any) -> bytes:
    """Write an entity, read it, and write it: nothing must change. Return the bytes."""
    written = encode_to_bytes(entity)
    entity_type = type(entity)
    expect(
        check_entity(entity_type, written) == len(written), "what was written is longer than the walk over it"
    )
    again, end = decode_entity(entity_type, written)
    expect(end == len(written), "what was written is not read to its end")
    # By their bytes: NaN is not equal to itself.
    expect(encode_to_bytes(again) == written, "it is read to something else")
    in_steps = b"".join(in_one_go(encode_entity_in_steps(entity)))
    expect(in_steps == written, "in steps something else is written")
    return written


def steps_of(frame: memoryview) -> tuple[RequestHeader, Any]:
    """Return what is read in steps."""
    return in_one_go(decode_request_in_steps(frame))


def _read_in_steps(frame: memoryview) -> Any:
    try:
        return steps_of(frame)
    except KafkaError as error:
        return error.error_code
