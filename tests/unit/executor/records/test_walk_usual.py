"""Records of different sizes that are compared as a whole, beside a reader of one record at a time."""

import random
from typing import Final

import pytest

from sparklog.executor.records.walk import read_record
from sparklog.executor.records.walk_usual import UsualRecords, read_usual
from sparklog.protocol.records.batch import HEADER_BYTES
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.varints import MalformedRecordsError

TINY, MIXED, SMALL, LARGE = (0, 30), (20, 90), (100, 160), (900, 1_300)
SIZES = pytest.mark.parametrize("sizes", [TINY, MIXED, SMALL, LARGE], ids=["tiny", "mixed", "small", "large"])
COUNT: Final = 80
"""Offsets of one byte, and of two."""


def some_records(sizes: tuple[int, int], step_ms: int = 1, count: int = COUNT) -> bytes:
    chance = random.Random(7)
    records = [
        SimpleRecord(
            None if index == 3 else b"key-%d" % index,
            bytes(120) if index == 5 else chance.randbytes(chance.randint(*sizes)),
            (),
            1_000_000 + index * step_ms,
        )
        for index in range(count)
    ]
    return build_batch(records)[HEADER_BYTES:]


def read_one_by_one(data: bytes, first_index: int = 0) -> UsualRecords | None:
    position, deltas, has_null_key = 0, list[int](), False
    try:
        while position < len(data):
            record = read_record(data, position)
            if record.offset_delta != first_index + len(deltas):
                return None
            deltas.append(record.timestamp_delta)
            has_null_key = has_null_key or record.key_length < 0
            position = record.end
    except (MalformedRecordsError, IndexError):
        return None
    return UsualRecords(position, len(deltas), min(0, *deltas), max(deltas), has_null_key)


def read_at_once(data: bytes, count: int = COUNT, first_index: int = 0) -> UsualRecords | None:
    found = read_usual(data, 0, count, first_index, require_keys=True)
    return found and found._replace(lowest_delta=min(0, found.lowest_delta))


@SIZES
@pytest.mark.parametrize("step_ms", [0, 1, 90, -1, -90])
def test_usual_records_are_all_read_at_once(sizes: tuple[int, int], step_ms: int) -> None:
    """Otherwise each batch of them would take twice the leader's time, and nothing else would show it."""
    data = some_records(sizes, step_ms)
    assert read_at_once(data) == read_one_by_one(data)


@SIZES
def test_whole_records_are_read_where_the_last_one_is_not(sizes: tuple[int, int]) -> None:
    """Decompressed records come in pieces that end anywhere."""
    data = some_records(sizes)
    edges = [0]
    while edges[-1] < len(data):
        edges.append(read_record(data, edges[-1]).end)
    for missing in (1, 2, 7, 8, 90):
        found = read_at_once(data[:-missing])
        whole = [edge for edge in edges if edge <= len(data) - missing]
        assert found is not None
        assert (found.end, found.record_count) == (whole[-1], len(whole) - 1), missing


@SIZES
@pytest.mark.parametrize("step_ms", [1, 90])
def test_no_bit_of_a_length_an_offset_or_a_timestamp_is_overlooked(
    sizes: tuple[int, int], step_ms: int
) -> None:
    """A record that lies stops each reader at its batch, so all fields are held against one another."""
    data = some_records(sizes, step_ms)
    position = 0
    for index in range(COUNT):
        record = read_record(data, position)
        if index in (0, 30, 63, 64, COUNT - 1):
            fields = [0, 1, *range(record.timestamp_position - position, record.key_position - position)]
            fields += [at - position for start, stop in record.lengths for at in range(start, stop)]
            for at in fields:
                for bit in range(8):
                    changed = bytearray(data)
                    changed[position + at] ^= 1 << bit
                    found, expected = read_at_once(bytes(changed)), read_one_by_one(bytes(changed))
                    if found is not None and expected is None:
                        assert found.record_count < COUNT, (index, at, bit)
                    elif found is not None and found.record_count == COUNT:
                        assert found == expected, (index, at, bit)
        position = record.end


def test_records_after_others_are_read_with_their_own_offsets() -> None:
    """Of a large batch one stretch is read after the other, and the last offsets have three bytes."""
    data = some_records((20, 90), 0, 8_300)
    position = index = 0
    while index < 8_100:
        found = read_usual(data, position, 1_024, index, require_keys=False)
        if found is None:
            position, index = read_record(data, position).end, index + 1
        else:
            assert found.end > position
            position, index = found.end, index + found.record_count
    assert read_record(data, position).offset_delta == index
    assert read_usual(data, position, 1_024, index + 1, require_keys=False) is None


def test_other_records_are_left_to_others() -> None:
    """Headers and large records have an answer elsewhere, and a wrong one here would stop their readers."""
    with_headers = [SimpleRecord(b"k", b"v" * (90 + index), (("h", b"w"),), 5) for index in range(COUNT)]
    large = [SimpleRecord(b"k", b"v" * (8_200 + index), (), 5) for index in range(COUNT)]
    for records in (with_headers, large):
        assert read_at_once(build_batch(records)[HEADER_BYTES:]) is None
    assert read_at_once(b"\x80" * 5_000) is None
    assert read_at_once(bytes(5_000)) is None
