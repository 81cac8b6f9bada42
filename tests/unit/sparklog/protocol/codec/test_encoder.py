"""The compiled writer must give exactly the bytes that kio's gives."""

import io
import random
from typing import Any

import pytest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.serial import entity_writer

from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoder import encode_entity, encode_entity_in_steps, encode_to_bytes
from sparklog.protocol.codec.guard import decode_entity
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests.unit.sparklog.node.serving.entities import arbitrary_entity, payload_types
from tests.unit.sparklog.node.serving.serving import BytesRegion, fetch_response


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda api_key: api_key.name)
def test_encoder_of_every_entity_writes_what_kio_writes(api_key: ApiKey) -> None:
    """kio is checked against Kafka's own serializers; so this is too."""
    source = random.Random(1000 + int(api_key))
    for entity_type in payload_types(api_key):
        for _ in range(4):
            entity = arbitrary_entity(entity_type, source)
            expected = io.BytesIO()
            entity_writer(entity_type)(expected, entity)
            assert encode_to_bytes(entity) == expected.getvalue()
            assert b"".join(in_one_go(encode_entity_in_steps(entity))) == encode_to_bytes(entity)


def test_encoder_of_large_and_filed_records_leaves_them_in_their_own_chunks() -> None:
    """Records must not be copied on their way out, and a file's must not even be read."""
    region = BytesRegion(b"R" * 5000)
    large = b"L" * 100_000
    response = fetch_response(region, large, b"small", None)
    chunks: list[Any] = list(encode_entity(response))
    assert [chunk for chunk in chunks if chunk is region or chunk is large] == [region, large]
    joined = b"".join(
        chunk.content if isinstance(chunk, BytesRegion) else memoryview(chunk) for chunk in chunks
    )
    assert joined == encode_to_bytes(fetch_response(region.content, large, b"small", None))


def test_encoder_of_a_too_long_string_in_an_old_version_says_so() -> None:
    """The int16 length of the older encoding cannot say it."""
    from kio.schema.find_coordinator.v1 import request as v1

    with pytest.raises(ValueError, match="32767"):
        encode_to_bytes(v1.FindCoordinatorRequest(key="k" * 40_000, key_type=0))


def test_encoder_of_a_request_with_a_string_that_no_broker_takes_says_so() -> None:
    """The compact length could say it; brokers close the connection, and he would try again for minutes."""
    longest = FindCoordinatorRequest(key_type=0, coordinator_keys=("k" * 0x7FFF,))
    assert decode_entity(FindCoordinatorRequest, encode_to_bytes(longest))[0] == longest
    with pytest.raises(ValueError, match="string of 32768 bytes exceeds 32767"):
        encode_to_bytes(FindCoordinatorRequest(key_type=0, coordinator_keys=("k" * 0x8000,)))


def test_encoder_of_a_missing_error_code_names_the_mistake() -> None:
    """A handler that forgets an error code must hear of it in the tests, not the client."""
    from kio.schema.heartbeat.v0.response import HeartbeatResponse

    assert encode_to_bytes(HeartbeatResponse(error_code=ErrorCode.none)) == b"\0\0"
    with pytest.raises(AttributeError):
        encode_to_bytes(HeartbeatResponse(error_code=None))
