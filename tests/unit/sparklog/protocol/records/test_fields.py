"""Where records start, found many at a time, against the plain walk from one to the next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.records.fields import record_starts
from sparklog.protocol.records.varints import MalformedRecordsError, append_varint, read_varint
from tests.examples import examples


def walked(payload: bytes, count: int) -> list[int]:
    """Return where records start, one by one."""
    starts, position = [], 0
    for _ in range(count):
        starts.append(position)
        try:
            length, position = read_varint(payload, position)
        except IndexError:
            raise MalformedRecordsError("cut") from None
        position += length
        if length < 0:
            raise MalformedRecordsError("negative")
    if position != len(payload):
        raise MalformedRecordsError("too short or too long")
    return starts


@given(
    st.lists(
        st.tuples(st.integers(6, 300), st.sampled_from([1, 15, 16, 17, 256, 1500])), min_size=1, max_size=5
    ),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=2),
)
@examples(60)
def test_records_start_where_a_plain_walk_finds_them(
    runs: list[tuple[int, int]], damage: list[tuple[int, int]]
) -> None:
    """Sound or damaged: what is taken many at a time was looked at, record by record."""
    built = bytearray()
    for size, count in runs:
        for _ in range(count):
            append_varint(built, size)
            built += bytes(size)
    for at, byte in damage:
        built[at % len(built)] = byte
    payload, total = bytes(built), sum(count for _, count in runs)
    try:
        expected = walked(payload, total)
    except MalformedRecordsError:
        with pytest.raises(MalformedRecordsError):
            starts = record_starts(payload, 0, len(payload), total)
            # A negative length is found where all fields are looked at.
            if any(read_varint(payload, start)[0] < 0 for start in starts.tolist()):
                raise MalformedRecordsError("negative") from None
        return
    assert record_starts(payload, 0, len(payload), total).tolist() == expected
