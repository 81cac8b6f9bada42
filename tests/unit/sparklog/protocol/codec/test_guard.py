"""Nothing that came from a socket may reach kio's reader unless it is safe to read."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.create_topics.v4.request import CreateTopicsRequest as CreateTopicsRequestV4
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v8.request import MetadataRequest as MetadataRequestV8
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.request_header.v2.header import RequestHeader

from sparklog.node.metadata.framing import decode_record, encode_record
from sparklog.node.metadata.schemas import ConfigRecord
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.encoder import encode_to_bytes, encode_varint
from sparklog.protocol.codec.guard import (
    MalformedRequestError,
    TooManyItemsError,
    check_entity,
    decode_entity,
    decode_entity_in_steps,
    skip_tagged_fields,
)
from sparklog.protocol.codec.layout import minimum_size_bytes
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests.examples import examples
from tests.unit.sparklog.node.serving.entities import arbitrary_entity, payload_types

ALL_TYPES = [entity_type for api_key in ApiKey for entity_type in payload_types(api_key)]


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda api_key: api_key.name)
def test_guard_of_every_entity_ends_where_its_bytes_end(api_key: ApiKey) -> None:
    """The walk is derived from the same schema as kio's reader; if they part, good requests are refused."""
    source = random.Random(int(api_key))
    for entity_type in payload_types(api_key):
        for _ in range(4):
            entity = arbitrary_entity(entity_type, source)
            encoded = encode_to_bytes(entity)
            assert check_entity(entity_type, encoded) == len(encoded)
            assert decode_entity(entity_type, b"before" + encoded, 6) == (entity, 6 + len(encoded))
            in_place = memoryview(b"before" + encoded)
            assert decode_entity(entity_type, in_place, 6, records_in_place=True) == (entity, len(in_place))
            steps = decode_entity_in_steps(entity_type, b"before" + encoded, 6, 1 << 30)
            assert in_one_go(steps) == (entity, 6 + len(encoded))


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda api_key: api_key.name)
def test_guard_of_every_entity_refuses_every_truncation(api_key: ApiKey) -> None:
    """A frame may end anywhere, and the reader must not look beyond it."""
    source = random.Random(int(api_key))
    for entity_type in payload_types(api_key):
        encoded = encode_to_bytes(arbitrary_entity(entity_type, source))
        for length in {0, 1, len(encoded) // 3, len(encoded) // 2, len(encoded) - 1} - {-1, len(encoded)}:
            if length < minimum_size_bytes(entity_type) or length == len(encoded) - 1:
                with pytest.raises(MalformedRequestError):
                    check_entity(entity_type, encoded[:length])


@examples(150)
@given(
    entity_type=st.sampled_from(ALL_TYPES),
    seed=st.integers(min_value=0, max_value=2**32),
    edits=st.lists(
        st.tuples(
            st.integers(min_value=0),
            st.sampled_from([0, 1, 4]),
            st.sampled_from([b"", b"\x00", b"\x80", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"]),
        ),
        max_size=4,
    ),
)
def test_decode_of_damaged_bytes_gives_an_entity_or_a_named_error(
    entity_type: type[Any], seed: int, edits: list[tuple[int, int, bytes]]
) -> None:
    """kio's native reader ends the process on some inputs; what the guard lets through must be safe."""
    encoded = bytearray(encode_to_bytes(arbitrary_entity(entity_type, random.Random(seed))))
    for where, removed, inserted in edits:
        start = where % (len(encoded) + 1)
        encoded[start : start + removed] = inserted
    try:
        decode_entity(entity_type, bytes(encoded))
    except MalformedRequestError as error:
        assert error.error_code is ErrorCode.invalid_request


@examples(80)
@given(entity_type=st.sampled_from(ALL_TYPES), garbage=st.binary(max_size=200))
def test_decode_of_garbage_gives_an_entity_or_a_named_error(entity_type: type[Any], garbage: bytes) -> None:
    """Port scanners and other protocols' clients send anything."""
    try:
        decode_entity(entity_type, garbage)
    except MalformedRequestError as error:
        assert error.error_code is ErrorCode.invalid_request


def test_guard_of_an_impossible_compact_array_says_what_was_claimed() -> None:
    """The claim alone would make kio reserve gigabytes and abort."""
    encoded = encode_varint(2**31 - 1) + bytes(20)
    with pytest.raises(MalformedRequestError, match=r"MetadataRequest v12\.topics claims 2147483646 items"):
        check_entity(MetadataRequest, encoded)


def test_guard_of_an_impossible_legacy_array_says_what_was_claimed() -> None:
    """The older encoding has int32 counts, with the same danger."""
    encoded = (2**31 - 1).to_bytes(4, "big") + bytes(20)
    with pytest.raises(MalformedRequestError, match=r"topics claims 2147483647 items at position 4"):
        check_entity(MetadataRequestV8, encoded)


def test_guard_of_an_array_measures_the_claim_by_the_least_size_of_an_item() -> None:
    """Twenty bytes cannot hold twenty structs of fourteen, though they could hold twenty of one."""
    encoded = (20).to_bytes(4, "big") + bytes(20)
    with pytest.raises(MalformedRequestError, match="claims 20 items"):
        check_entity(CreateTopicsRequestV4, encoded)


def test_guard_of_a_null_where_none_may_be_refuses_it() -> None:
    """kio would hand the handler None for a field whose type says it is a tuple."""
    throttle_and_null_brokers = bytes(4) + b"\0"
    with pytest.raises(MalformedRequestError, match="brokers is null"):
        check_entity(MetadataResponse, throttle_and_null_brokers + bytes(20))


def test_guard_of_a_negative_length_refuses_it() -> None:
    """Only -1 means null in the older encoding; anything below would move the position back."""
    encoded = (-7).to_bytes(4, "big", signed=True) + bytes(4)
    with pytest.raises(MalformedRequestError, match="length -7"):
        check_entity(MetadataRequestV8, encoded)


def test_guard_of_a_varint_without_end_refuses_it() -> None:
    """A length of more than 31 bits is no length."""
    with pytest.raises(MalformedRequestError, match="31 bits"):
        check_entity(MetadataRequest, b"\xff\xff\xff\xff\xff\xff\x01")


def test_guard_of_a_tagged_field_of_another_size_than_it_says_refuses_it() -> None:
    """kio trusts the field and the stepping reader trusts the size; they must agree."""
    cluster_id_of_wrong_size = b"\x01" + b"\x00" + b"\x05" + b"\x03ab" + bytes(2)
    fixed = bytes(4 + 4 + 4 + 4 + 1 + 4 + 4) + b"\x01" + b"\x01" + b"\x01"
    with pytest.raises(MalformedRequestError, match="tagged field"):
        check_entity(FetchRequest, fixed + cluster_id_of_wrong_size)


def test_decode_of_an_unknown_tagged_field_ignores_it() -> None:
    """Newer clients may add tagged fields to versions we know, and must be understood (KIP-482)."""
    request = ProduceRequest(
        acks=-1,
        timeout=timedelta(seconds=1),
        topic_data=(
            TopicProduceData(name="t", partition_data=(PartitionProduceData(index=3, records=b"r" * 300),)),
        ),
    )
    encoded = encode_to_bytes(request)
    assert encoded.endswith(b"\0\0\0")  # the tagged fields of partition, topic and request
    unknown = b"\x02" + b"\x63\x03abc" + b"\x64\x00"
    extended = encoded[:-3] + unknown + b"\0" + unknown
    assert decode_entity(ProduceRequest, extended) == (request, len(extended))


def test_decode_of_a_nullable_struct_beside_an_unknown_tagged_field_keeps_it() -> None:
    """The stepping reader must know nullable structs as well (KIP-893)."""
    request = DescribeTopicPartitionsRequest(
        topics=(TopicRequest(name="t"),), cursor=Cursor(topic_name="t", partition_index=4)
    )
    encoded = encode_to_bytes(request)[:-1] + b"\x01\x63\x01x"
    assert decode_entity(DescribeTopicPartitionsRequest, encoded) == (request, len(encoded))


@pytest.mark.parametrize("marker", [0x80, 0xDB, 0xFE])
def test_null_that_is_another_number_below_zero_is_null(marker: int) -> None:
    """To Java it is. kio takes the bytes behind it for the struct: the two would end at different places."""
    cursor = b"\x02t\0\0\0\x07\0"
    frame = b"\x01\0\0\0\x05" + bytes([marker]) + b"\0" + cursor
    request, end = decode_entity(DescribeTopicPartitionsRequest, frame)
    assert (request.cursor, end) == (None, 7)


def test_guard_of_a_flexible_request_header_reads_the_client_id_as_an_int16_string() -> None:
    """RequestHeader v2 is flexible except for this field (KIP-511)."""
    header = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=7, client_id="a client")
    encoded = encode_to_bytes(header)
    assert encoded.hex() == "0003000c00000007" + "0008" + b"a client".hex() + "00"
    assert check_entity(RequestHeader, encoded) == len(encoded)


def test_skip_of_tagged_fields_in_a_header_returns_the_position_after_them() -> None:
    """A header may carry tagged fields that nobody here knows."""
    assert skip_tagged_fields(b"..\x01\x05\x02ab.", 2) == 7
    with pytest.raises(MalformedRequestError):
        skip_tagged_fields(b"\x01\x05\x09ab", 0)
    with pytest.raises(MalformedRequestError):
        skip_tagged_fields(b"", 0)


def test_items_are_counted_before_the_walk_steps_into_their_array() -> None:
    """A million and a half empty keys in 1.5 MB would be seconds of work, and 190 bytes of memory each."""
    keys = 1_500_000
    encoded = b"\0" + encode_varint(keys + 1) + b"\1" * keys + b"\0"
    with pytest.raises(TooManyItemsError, match=r"v6.coordinator_keys has 1500000 items .* 16777216 bytes"):
        check_entity(FindCoordinatorRequest, encoded, 0, 16 << 20)
    assert check_entity(FindCoordinatorRequest, encoded) == len(encoded)


def test_unknown_tagged_fields_are_counted_as_items_are() -> None:
    """Two bytes each are a step of the walk; fifty million of them fit into one frame."""
    tags = 1_000_000
    encoded = b"\0\1" + encode_varint(tags) + b"\x64\0" * tags
    with pytest.raises(TooManyItemsError, match=r"FindCoordinatorRequest v6.tags has 1000000 items"):
        check_entity(FindCoordinatorRequest, encoded, 0, 16 << 20)


def test_header_with_more_tagged_fields_than_any_client_sends_is_refused() -> None:
    """The header is walked over before anybody knows which API is asked for."""
    with pytest.raises(TooManyItemsError):
        skip_tagged_fields(encode_varint(100_000) + b"\x64\0" * 100_000, 0)
    assert skip_tagged_fields(encode_varint(20) + b"\x64\0" * 20, 0) == 41


def _compact(length: int) -> bytes:
    return encode_varint(length + 1) + b"k" * length


@pytest.mark.parametrize(
    ("request_type", "with_string_of"),
    [
        (ApiVersionsRequest, lambda length: _compact(length) + _compact(1) + b"\0"),
        (FindCoordinatorRequest, lambda length: b"\0\2" + _compact(length) + b"\0"),
        (
            FetchRequest,  # the cluster id, which is a tagged field
            lambda length: bytes(25) + b"\1\1\1\1\0" + encode_varint(length + 3) + _compact(length),
        ),
    ],
    ids=["a field", "items", "a tagged field"],
)
def test_string_of_a_request_has_no_more_bytes_than_kafka_takes(
    request_type: type[Any], with_string_of: Callable[[int], bytes]
) -> None:
    """Some are kept, and who sends them need not have logged in; a compact length could say gigabytes."""
    longest = with_string_of(0x7FFF)
    assert decode_entity(request_type, longest)[1] == len(longest)
    for decode in (decode_entity, check_entity):
        with pytest.raises(MalformedRequestError, match="has 32768 bytes at position"):
            decode(request_type, with_string_of(0x8000))


def test_string_of_a_record_is_read_as_long_as_it_was_written() -> None:
    """What a cluster has in its log it must be able to start from."""
    record = ConfigRecord(resource_type=4, resource_name="", name="super.users", value="k" * 100_000)
    assert decode_record(encode_record(record)) == record
