"""Keys and values alone, against the reader of whole records."""

import contextlib
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.records.batch import HEADER_BYTES, CorruptBatchError, header_bytes, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.records.key_values import read_key_runs
from tests.key_values import read_keys_and_values

_fields = st.none() | st.binary(max_size=200)
_records = st.lists(
    st.builds(
        SimpleRecord,
        _fields,
        _fields,
        st.lists(st.tuples(st.text(max_size=5), _fields), max_size=2).map(tuple),
        st.integers(0, 2**41),
        st.none(),
    ),
    min_size=1,
    max_size=20,
)


@given(_records, st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_keys_and_values_are_those_of_the_records(records: list[SimpleRecord], codec: Codec) -> None:
    """Whatever else a record has, and however long its parts are."""
    batch = b"before" + build_batch(records, codec=codec)
    header = read_header(batch, 6)
    assert list(read_keys_and_values(batch, header, 6)) == [(record.key, record.value) for record in records]


_alike = st.builds(
    lambda prefix, value, ends: [SimpleRecord(prefix + end, value, timestamp_ms=1) for end in ends],
    st.binary(max_size=8),
    st.binary(min_size=1, max_size=200),
    st.lists(st.binary(min_size=4, max_size=4), min_size=1, max_size=200),
)


@given(st.lists(_alike | _records, min_size=1, max_size=3).map(lambda parts: [*chain(*parts)]))
def test_records_of_one_layout_are_read_in_runs_and_nothing_is_lost(records: list[SimpleRecord]) -> None:
    """A run goes on where its layout does: offsets get longer, values change, others lie in between."""
    batch = build_batch(records)
    runs = list(read_key_runs(batch, read_header(batch)))
    assert [pair for run in runs for pair in run.keys_and_values()] == [
        (each.key, each.value) for each in records
    ]
    assert all(run.prefix is not None or len(run.ends) == 1 for run in runs)


def test_many_records_of_one_layout_are_few_runs() -> None:
    """It is what a load of a million offsets rests on: two layouts, by the length of the offsets."""
    batch = build_batch([SimpleRecord(b"key" + number.to_bytes(4), bytes(30)) for number in range(200)])
    assert [len(run.ends) for run in read_key_runs(batch, read_header(batch))] == [64, 136]


@given(st.data(), st.binary(min_size=1, max_size=1))
def test_run_with_a_byte_changed_is_read_as_record_after_record_would_be(
    data: st.DataObject, byte: bytes
) -> None:
    """Whatever comes from a disk: what reads faster reads the same, or is as corrupt."""
    records = [SimpleRecord(b"key" + number.to_bytes(4), bytes(5)) for number in range(70)]
    batch = bytearray(build_batch(records))
    batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = byte[0]
    header = read_header(batch)
    with contextlib.suppress(CorruptBatchError):
        expected = [(record.key, record.value) for record in read_records(bytes(batch), header)]
        assert list(read_keys_and_values(bytes(batch), header)) == expected


@given(st.binary(max_size=60), st.integers(1, 5))
def test_bytes_that_are_no_records_are_corrupt_and_nothing_else(payload: bytes, count: int) -> None:
    """They come from a disk; and what is read of them is what the other reader reads."""
    header = read_header(build_batch([SimpleRecord(b"k", b"v")]))._replace(record_count=count)
    batch = header_bytes(header, payload) + payload
    header = read_header(batch)
    with contextlib.suppress(CorruptBatchError):
        expected = [(record.key, record.value) for record in read_records(batch, header)]
        assert list(read_keys_and_values(batch, header)) == expected
    with contextlib.suppress(CorruptBatchError):
        list(read_keys_and_values(batch, header))


def test_record_that_claims_more_than_its_batch_has_is_corrupt() -> None:
    """Python's slices would say nothing."""
    batch = bytearray(build_batch([SimpleRecord(b"key", b"value")]))
    batch[HEADER_BYTES + 8] = 100
    with pytest.raises(CorruptBatchError):
        list(read_keys_and_values(bytes(batch), read_header(batch)))
