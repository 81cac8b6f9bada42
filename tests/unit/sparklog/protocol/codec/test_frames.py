"""Headers as Kafka lays them out, byte for byte."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.heartbeat.v3.request import HeartbeatRequest as HeartbeatRequestV3
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from sparklog.protocol.codec.allowance import MAX_REQUEST_MEMORY_BYTES
from sparklog.protocol.codec.frames import (
    RequestHeader,
    decode_request_in_steps,
    decode_response,
    encode_response_in_steps,
    request_encoder,
)
from sparklog.protocol.codec.guard import MalformedRequestError, TooManyItemsError
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode, KafkaError


def encoded(entity: Any, correlation_id: int, client_id: str | None) -> str:
    chunks: list[Any] = list(request_encoder(client_id)(entity, correlation_id))
    return b"".join(chunks).hex()


def test_request_frames_have_kafkas_bytes() -> None:
    """Header v1 ends with the client id, header v2 with an empty tag section behind it."""
    old = HeartbeatRequestV3(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    assert encoded(old, 5, "me") == ("00000018000c00030000000500026d650001670000000100016dffff")
    new = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    assert encoded(new, 5, None) == ("00000015000c000400000005ffff00026700000001026d0000")


def test_response_frames_have_kafkas_bytes_and_api_versions_the_old_header() -> None:
    """A client reads ApiVersions before it knows which header it will get (KIP-511)."""
    response = HeartbeatResponse(throttle_time=timedelta(0), error_code=ErrorCode.none)
    assert (
        in_one_go(encode_response_in_steps(RequestHeader(12, 4, 5, None), response)).hex()
        == "000000050000000000000000"
    )
    versions = ApiVersionsResponse(error_code=ErrorCode.none, api_keys=(), throttle_time=timedelta(0))
    assert (
        in_one_go(encode_response_in_steps(RequestHeader(18, 3, 5, None), versions)).hex()
        == "000000050000010000000000"
    )


@given(
    correlation_id=st.integers(0, 2**31 - 1),
    client_id=st.none() | st.text(max_size=50),
    group_id=st.text(max_size=300),
    generation_id=st.integers(-(2**31), 2**31 - 1),
)
def test_request_round_trip(
    correlation_id: int, client_id: str | None, group_id: str, generation_id: int
) -> None:
    """What one side writes the other reads, for any text and number."""
    request = HeartbeatRequest(
        group_id=group_id, generation_id=generation_id, member_id="", group_instance_id=None
    )
    frame = bytes.fromhex(encoded(request, correlation_id, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert in_one_go(decode_request_in_steps(frame[4:])) == (
        RequestHeader(12, 4, correlation_id, client_id),
        request,
    )


def test_response_header_with_unknown_tags_is_read() -> None:
    """A newer server may add tagged fields to the header."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    response = HeartbeatResponse(throttle_time=timedelta(0), error_code=ErrorCode.none)
    frame = bytes.fromhex("00000005010702abcd00000000000000")
    assert decode_response(request, frame) == (5, response)


def test_unsupported_api_versions_response_is_read_in_v0() -> None:
    """The refusal comes in v0 whatever was asked (KIP-511)."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    frame = bytes.fromhex("00000005002300000001001200000004")
    _, response = decode_response(request, frame)
    assert (response.__version__, response.error_code) == (0, ErrorCode.unsupported_version)


def test_request_of_an_unknown_api_is_an_unsupported_version() -> None:
    """An envelope may carry anything."""
    with pytest.raises(KafkaError) as caught:
        in_one_go(decode_request_in_steps(bytes.fromhex("7fff000000000000ffff")))
    assert caught.value.error_code is ErrorCode.unsupported_version
    with pytest.raises(MalformedRequestError):
        in_one_go(decode_request_in_steps(b"\0\0"))


def test_client_id_that_is_too_long_is_refused_before_anything_is_sent() -> None:
    """The int16 in front of it could not say its length."""
    with pytest.raises(ValueError, match="32767"):
        request_encoder("x" * 40_000)


def test_request_in_an_envelope_has_the_memory_that_its_api_may_take() -> None:
    """A broker forwards what its clients sent, and the controller must not take more than the broker may."""
    keys = tuple(str(number) for number in range(200))
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    frame = bytes.fromhex(encoded(request, 1, "c"))[4:]
    assert in_one_go(decode_request_in_steps(frame))[1] == request
    with pytest.raises(TooManyItemsError):
        in_one_go(decode_request_in_steps(frame, lambda api_key: MAX_REQUEST_MEMORY_BYTES // 1_000))
