"""A follower's Fetch without entities is the Fetch with them, byte for byte."""

from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.codec.error_counts import count_error_codes
from sparklog.protocol.codec.fixed.fetch import (
    MOST_PARTITIONS,
    AskedPartition,
    AskedTopic,
    FetchedData,
    FetchedTopic,
    FollowerFetchRequest,
    FollowerFetchResponse,
    ForgottenTopic,
    ReplicaState,
    read_request,
    read_response,
)
from sparklog.protocol.codec.frames import (
    LENGTH,
    decode_response,
    encode_response_frame,
    read_request_body,
    read_request_header,
    request_codec,
    request_encoder,
)
from sparklog.protocol.errors import ErrorCode
from tests.examples import FEW, examples
from tests.fuzz.targets.fixed import take_request, take_response
from tests.unit.sparklog.node.serving.serving import BytesRegion
from tests.unit.sparklog.protocol.codec.fixed.requests import damaged

_CODEC = request_codec(1, 17)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_TOPIC_IDS = st.uuids().filter(lambda topic_id: topic_id.int != 0)
_RECORDS = st.sampled_from((b"", b"r", b"r" * 126, b"r" * 127, b"r" * 20_000))


def _requests() -> st.SearchStrategy[FollowerFetchRequest]:
    asked = st.builds(AskedPartition, _INT32, _INT32, _INT64, _INT32, _INT64, _INT32)
    return st.builds(
        FollowerFetchRequest,
        st.builds(ReplicaState, st.integers(0, 2**31 - 1), _INT64),
        _INT32.map(lambda count: timedelta(milliseconds=count)),
        _INT32,
        _INT32,
        _INT32,
        _INT32,
        st.lists(st.builds(AskedTopic, _TOPIC_IDS, st.lists(asked, max_size=4)), max_size=3),
    )


def _responses() -> st.SearchStrategy[FollowerFetchResponse]:
    fetched = st.builds(FetchedData, _INT32, _INT64, _INT64, _INT64, _RECORDS)
    topics = st.lists(st.builds(FetchedTopic, _TOPIC_IDS, st.lists(fetched, max_size=4)), max_size=3)
    return st.builds(FollowerFetchResponse, _INT32, topics)


@examples(FEW)
@given(_requests(), _INT32, st.none() | st.text(max_size=20))
def test_request_is_written_and_read_as_its_entity(
    request: FollowerFetchRequest, correlation_id: int, client_id: str | None
) -> None:
    """A broker of another version reads it as an entity."""
    encode = request_encoder(client_id)
    frame = b"".join(encode(request, correlation_id))
    assert request.encoded() is not None
    assert frame == b"".join(encode(request.entity(), correlation_id))
    _, position = read_request_header(frame[LENGTH.size :])
    read = read_request(frame[LENGTH.size :], position)
    assert read is not None
    assert read.entity() == request.entity() == read_request_body(_CODEC, frame[LENGTH.size :], position)


@examples(FEW)
@given(_requests(), st.randoms(use_true_random=False))
def test_request_that_is_cut_or_changed_is_the_entity_of_its_bytes_or_none(
    request: FollowerFetchRequest, source: Any
) -> None:
    """A length that lies must lead to the entity's reader, which finds the error."""
    frame = b"".join(request_encoder("c")(request, 1))[LENGTH.size :]
    assert take_request(frame)
    for each in damaged(frame, source):
        take_request(each)


@examples(FEW)
@given(_responses(), _INT32)
def test_response_is_written_and_read_as_its_entity(
    response: FollowerFetchResponse, correlation_id: int
) -> None:
    """The follower may read it as an entity."""
    frame = b"".join(response.frame(correlation_id))
    assert frame == b"".join(encode_response_frame(_CODEC, correlation_id, response.entity()))
    read = read_response(memoryview(frame)[LENGTH.size :])
    assert read is not None
    assert read.entity() == response.entity()
    counted: Counter[ErrorCode] = Counter()
    count_error_codes(response.entity(), counted)
    assert counted == {ErrorCode.none: response.success_count}


@examples(FEW)
@given(_responses(), st.randoms(use_true_random=False))
def test_response_that_is_cut_or_changed_is_the_entity_of_its_bytes_or_none(
    response: FollowerFetchResponse, source: Any
) -> None:
    """A follower must append no byte behind the records, whatever a length says."""
    frame = b"".join(response.frame(1))[LENGTH.size :]
    assert take_response(frame)
    for each in damaged(frame, source):
        take_response(each)


@given(_TOPIC_IDS)
def test_response_with_records_of_a_file_leaves_them_in_their_own_chunk(topic_id: Any) -> None:
    """They leave by sendfile."""
    region = BytesRegion(b"R" * 5_000)
    response = FollowerFetchResponse(7, [FetchedTopic(topic_id, [FetchedData(0, 1, 1, 0, region)])])
    head, records, tail = response.frame(1)
    assert records is region
    assert LENGTH.unpack_from(bytes(head))[0] == len(head) + len(region) + len(tail) - LENGTH.size


@given(_TOPIC_IDS)
def test_request_of_another_shape_is_written_as_its_entity(topic_id: Any) -> None:
    """The leader's session has to be given up for each partition, in one message or another."""
    many = [AskedPartition(number, 1, 2, 3, 4, 5) for number in range(MOST_PARTITIONS + 1)]
    follower, wait = ReplicaState(1, 2), timedelta(milliseconds=500)
    encode = request_encoder("c")
    for request in (
        FollowerFetchRequest(follower, wait, 1, 2, 3, 4, [AskedTopic(topic_id, many)]),
        FollowerFetchRequest(follower, wait, 1, 2, 3, 4, [], [ForgottenTopic(topic_id, (1, 2))]),
        FollowerFetchRequest(ReplicaState(-1, -1), wait, 1, 2, 3, 4, []),
    ):
        assert request.encoded() is None
        frame = b"".join(encode(request, 5))
        assert frame == b"".join(encode(request.entity(), 5))
        assert not take_request(frame[LENGTH.size :]) or request.replica_state.replica_id < 0


@given(_responses())
def test_response_to_a_fixed_request_has_its_records_in_place(response: FollowerFetchResponse) -> None:
    """The copy of each batch is what a follower spares."""
    request = FollowerFetchRequest(ReplicaState(1, 2), timedelta(), 1, 2, 3, 4, [])
    frame = memoryview(b"".join(response.frame(9)))[LENGTH.size :]
    correlation_id, read = decode_response(request, frame)
    assert correlation_id == 9
    assert all(
        isinstance(fetched.records, memoryview) and fetched.records.obj is frame.obj
        for topic in read.responses
        for fetched in topic.partitions
    )
