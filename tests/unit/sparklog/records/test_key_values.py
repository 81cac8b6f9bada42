"""Keys and values alone, against the reader of whole records."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.records.batch import HEADER_BYTES, CorruptBatchError, header_bytes, read_header
from sparklog.records.builder import SimpleRecord, build_batch, read_records
from sparklog.records.codecs import Codec
from sparklog.records.key_values import read_keys_and_values

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
