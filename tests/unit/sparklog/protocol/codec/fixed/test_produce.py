"""A Produce to one partition without entities is the Produce with them, byte for byte."""

import struct
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.fixed.produce import PartitionProduce, PartitionProduced, request_reader
from sparklog.protocol.codec.frames import (
    encode_response_frame,
    read_request_body,
    read_request_header,
    request_codec,
)
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.examples import FEW, examples
from tests.fuzz.targets.fixed import take_request
from tests.unit.sparklog.protocol.codec.fixed.requests import (
    BATCH,
    TOPIC_ID,
    VERSIONS,
    damaged,
    frame_of,
    produce,
)

_INT16 = st.integers(-(2**15), 2**15 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_BATCHES = st.sampled_from((1, 58, 59, 60, 16_400, 70_000)).map(
    lambda count: build_batch([SimpleRecord(None, b"v" * count, (), 1)])
)


def read(request: Any) -> PartitionProduce | None:
    """Return the request as a broker reads it that receives it."""
    frame = memoryview(frame_of(request))
    header, position = read_request_header(frame)
    reader = request_reader(header.api_version)
    assert reader is not None
    fixed = reader(frame, position)
    assert fixed is None or isinstance(fixed, PartitionProduce)
    assert fixed is None or fixed.entity() == read_request_body(
        request_codec(ApiKey.PRODUCE, header.api_version), frame, position
    )
    return fixed


@examples(FEW)
@given(st.sampled_from(VERSIONS), _BATCHES, st.text(max_size=40), _INT32, _INT16, _INT32)
def test_request_is_read_as_its_entity(
    version: int, records: bytes, topic: str, index: int, acks: int, timeout_ms: int
) -> None:
    """Guards and refusals go on with the entity."""
    timeout = timedelta(milliseconds=timeout_ms)
    request = produce(version, records, topic, index=index, acks=acks, timeout=timeout)
    fixed = read(request)
    assert fixed is not None
    assert fixed.entity() == request
    ((asked,),) = (topic.partition_data for topic in fixed.topic_data)
    assert (fixed.acks, fixed.timeout, asked.index, asked.records) == (acks, timeout, index, records)
    assert (fixed.topic_id if version >= 13 else fixed.name) == (TOPIC_ID if version >= 13 else topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_has_its_records_in_place(version: int) -> None:
    """The copy of each batch is what a leader spares."""
    frame = memoryview(frame_of(produce(version)))
    reader = request_reader(version)
    assert reader is not None
    fixed = reader(frame, read_request_header(frame)[1])
    assert isinstance(fixed, PartitionProduce)
    assert isinstance(fixed.records, memoryview) and fixed.records.obj is frame.obj


@examples(FEW)
@given(st.sampled_from(VERSIONS), _BATCHES, st.text(max_size=40), st.randoms(use_true_random=False))
def test_request_that_is_cut_or_changed_is_the_entity_of_its_bytes_or_none(
    version: int, records: bytes, topic: str, source: Any
) -> None:
    """A length that lies must lead to the entity's reader, which finds the error."""
    frame = frame_of(produce(version, records, topic))
    assert take_request(frame)
    for each in damaged(frame, source):
        take_request(each)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_of_another_shape_is_left_to_its_entity(version: int) -> None:
    """Requests with transactions, several partitions or no batch are read as entities."""
    usual = produce(version)
    (topic,) = usual.topic_data
    transactional = bytearray(BATCH)
    struct.pack_into(">h", transactional, 21, 0x10)
    for request in (
        produce(version, transactional_id="x"),
        produce(version, bytes(transactional)),
        produce(version, BATCH[:60]),
        produce(version, None),
        replace(usual, topic_data=()),
        replace(usual, topic_data=(topic, topic)),
        replace(usual, topic_data=(replace(topic, partition_data=()),)),
        replace(usual, topic_data=(replace(topic, partition_data=topic.partition_data * 2),)),
    ):
        assert read(request) is None
    assert read(usual) is not None
    if version >= 13:
        assert read(replace(usual, topic_data=(replace(topic, topic_id=None),))) is None
    elif version >= 9:
        assert read(produce(version, topic="t" * 127)) is None


def test_reader_is_there_for_the_versions_that_are_offered() -> None:
    """A version to come is read as an entity until its layout is known."""
    assert [version for version in range(16) if request_reader(version) is not None] == list(VERSIONS)


@examples(FEW)
@given(
    st.sampled_from(VERSIONS),
    _INT32,
    _INT32,
    _INT64,
    st.none() | st.integers(0, 2**42),
    _INT64,
)
def test_response_is_written_as_its_entity(
    version: int,
    correlation_id: int,
    index: int,
    base_offset: int,
    append_time_ms: int | None,
    log_start_offset: int,
) -> None:
    """A producer reads it, whichever way it was made."""
    request = read(produce(version, index=index))
    assert request is not None
    response = PartitionProduced(request, base_offset, append_time_ms, log_start_offset)
    entity, codec = response.entity(), request_codec(ApiKey.PRODUCE, version)
    assert b"".join(map(bytes, response.frame(correlation_id))) == b"".join(
        map(bytes, encode_response_frame(codec, correlation_id, entity))
    )
    assert response.success_count == 1
