"""Counting records by their lengths, over pieces that part anywhere."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.records.counting import check_record_count
from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import HEADER_BYTES
from sparklog.records.builder import SimpleRecord, build_batch


def payload_of(sizes: list[int]) -> bytes:
    return build_batch([SimpleRecord(value=bytes(size)) for size in sizes])[HEADER_BYTES:]


def refused(payload: bytes, record_count: int) -> bool:
    try:
        check_record_count((payload,), record_count)
    except KafkaError as error:
        assert error.error_code is ErrorCode.invalid_record
        return True
    return False


@given(
    st.lists(
        st.one_of(st.integers(0, 200), st.sampled_from([50, 51, 58, 8_186, 20_000])), min_size=1, max_size=60
    ),
    st.integers(1, 40),
    st.lists(st.integers(1, 3_000), min_size=1, max_size=5),
)
@settings(max_examples=200)
def test_records_of_any_sizes_are_counted_however_the_pieces_part(
    sizes: list[int], times: int, parts: list[int]
) -> None:
    """Equal lengths are hopped over in runs, lengths of one to three bytes may be cut in two."""
    sizes = sizes[: 1 + 60 // times] * times
    payload = payload_of(sizes)
    pieces = []
    position = 0
    while position < len(payload):
        size = parts[len(pieces) % len(parts)]
        pieces.append(payload[position : position + size])
        position += size
    check_record_count(pieces, len(sizes))
    assert refused(payload, len(sizes) - 1)
    assert refused(payload, len(sizes) + 1)
    assert refused(payload[:-1], len(sizes))
    assert refused(payload + b"\0", len(sizes))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        bytes(1_000),
        b"\x0a" + bytes(5),
        b"\x01" + bytes(20),
        b"\x8b\x80\x00" + bytes(20),
        b"\xff" * 20,
        b"\xff",
        b"\xfe\xff\xff\xff\x0f",
    ],
)
def test_bytes_that_are_no_records_are_refused_whatever_the_count(payload: bytes) -> None:
    """Else a kilobyte of zeros would be a thousand records, and a compressed one a million."""
    for record_count in (1, 2, 5, 1_000, 2**31 - 1):
        assert refused(payload, record_count)


def test_counting_stops_at_the_piece_that_shows_too_many() -> None:
    """Who claims few records cannot make a leader walk through gigabytes of them."""
    taken = 0

    def pieces() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield payload_of([10] * 100)

    with pytest.raises(KafkaError):
        check_record_count(pieces(), 150)
    assert taken == 2
