"""A few records that a loop reads which knows what to expect, beside a reader of all there may be."""

import random
from typing import Final

import pytest

from sparklog.executor.records.walk import read_record
from sparklog.executor.records.walk_few import StretchOfRecords, read_few
from sparklog.protocol.records.batch import HEADER_BYTES
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.varints import MalformedRecordsError, read_varint

COUNT: Final = 70
"""Offsets of one byte, and of two."""
HEADERS: Final = (("trace", b"0123456789" * 9), ("empty", b""), ("none", None))


def some_records(step_ms: int, *, headers: bool = False, count: int = COUNT) -> bytes:
    chance = random.Random(7)
    records = [
        SimpleRecord(
            chance.choice([None, b"", b"key", b"k" * 70]),
            None if index == 5 else chance.randbytes(chance.choice([0, 20, 61, 64, 300])),
            chance.choices(HEADERS, k=index % 4) if headers else (),
            1_000_000 + index * step_ms,
        )
        for index in range(count)
    ]
    return build_batch(records)[HEADER_BYTES:]


def starts_of(data: bytes) -> list[int]:
    """Return where whole records begin, by lengths that are not checked yet, and where the last one ends."""
    starts, at = [0], 0
    try:
        while at < len(data):
            length, after = read_varint(data, at)
            at = after + (length if length >= 0 else -1 - length)  # as the walk, which takes no signs
            if at > len(data):
                break
            starts.append(at)
    except (MalformedRecordsError, IndexError):
        pass
    return starts


def read_at_once(data: bytes) -> StretchOfRecords | None:
    *starts, end = starts_of(data)
    return read_few(data, starts, end, 0)


def read_one_by_one(data: bytes) -> StretchOfRecords | None:
    """Return the same of the records, None if one is malformed."""
    *starts, last = starts_of(data)
    deltas, has_null_key, header_count = list[int](), False, 0
    try:
        for index, (start, end) in enumerate(zip(starts, [*starts[1:], last], strict=True)):
            record = read_record(data, start)
            if record.offset_delta != index or record.end != end:
                return None
            deltas.append(record.timestamp_delta)
            has_null_key = has_null_key or record.key_length < 0
            header_count += (len(record.lengths) - 3) // 2
    except (MalformedRecordsError, IndexError):
        return None
    return StretchOfRecords(min(deltas), max(deltas), has_null_key, header_count) if deltas else None


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("step_ms", [0, 1, 90, -1, -90])
def test_few_records_are_read_as_by_the_reader_of_all(step_ms: int, headers: bool) -> None:
    """Otherwise each small batch would take three times the leader's time, and nothing else would show it."""
    data = some_records(step_ms, headers=headers)
    found = read_at_once(data)
    assert found is not None
    assert found == read_one_by_one(data)


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("step_ms", [1, 90])
def test_no_bit_of_a_record_s_structure_is_overlooked(step_ms: int, headers: bool) -> None:
    """A record that lies stops each reader at its batch."""
    data = some_records(step_ms, headers=headers)
    starts = starts_of(data)
    for index in (0, 5, 30, 63, 64, COUNT - 1):
        record = read_record(data, starts[index])
        fields = {starts[index], starts[index] + 1, *range(record.timestamp_position, record.key_position)}
        for start, stop in record.lengths:
            fields |= set(range(start, stop))
        for at in fields:
            for bit in range(8):
                changed = bytearray(data)
                changed[at] ^= 1 << bit
                expected = read_one_by_one(bytes(changed))
                assert read_at_once(bytes(changed)) in (None, expected), (index, at, bit)


def test_bytes_at_random_are_not_taken_for_records_that_they_are_not() -> None:
    """Varints may be longer than they need to be, which is allowed, or than they may be."""
    chance = random.Random(3)
    data = some_records(3, headers=True, count=6)
    for _ in range(3_000):
        changed = bytearray(data)
        for _ in range(chance.choice([1, 2, 4])):
            changed[chance.randrange(len(changed))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF])
        assert read_at_once(bytes(changed)) in (None, read_one_by_one(bytes(changed)))


def test_offsets_of_three_bytes_and_cut_off_records_are_left_to_others() -> None:
    """The first two bytes of such an offset, and what lies behind the data, must not pass for more."""
    whole = some_records(0, count=8_200)
    starts = starts_of(whole)
    for first in (8_150, 8_185, 8_192, 8_195):
        found = read_few(whole, starts[first : first + 5], starts[first + 5], first)
        assert (found is not None) == (first + 5 <= 8_192)
    data = some_records(0, count=3)
    *starts, end = starts_of(data)
    for missing in range(1, 12):
        assert read_few(data[:-missing], starts, end, 0) is None
