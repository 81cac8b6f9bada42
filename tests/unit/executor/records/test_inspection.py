"""Checks of the records inside a batch."""

import pytest

from executor.records.inspection import inspect_records
from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import HEADER_BYTES, read_header
from sparklog.records.builder import SimpleRecord, build_batch
from sparklog.records.codecs import Codec, decompress
from tests.unit.sparklog.records.samples import JAVA_BATCHES


def inspect(batch: bytes, *, require_keys: bool = False, **bounds: int) -> None:
    header = read_header(batch)
    payload = decompress(header.codec, batch[HEADER_BYTES:], 1 << 20)
    inspect_records(payload, header, require_keys=require_keys, **bounds)


@pytest.mark.parametrize("codec", Codec)
def test_null_key_is_refused_only_where_keys_are_required(codec: Codec) -> None:
    """A compacted topic could neither keep nor drop such a record; an empty key is a key."""
    inspect(JAVA_BATCHES[codec])
    with pytest.raises(KafkaError, match="record 1 has no key") as raised:
        inspect(JAVA_BATCHES[codec], require_keys=True)
    assert raised.value.error_code is ErrorCode.invalid_record
    inspect(build_batch([SimpleRecord(b""), SimpleRecord(b"k")], codec=codec), require_keys=True)


def test_timestamps_of_all_records_must_be_within_bounds() -> None:
    """The header names only the first and the latest."""
    batch = build_batch([SimpleRecord(b"k", timestamp_ms=time) for time in (100, 50, 120)])
    inspect(batch, earliest_ms=50, latest_ms=120)
    for bounds in ({"earliest_ms": 51}, {"latest_ms": 119}):
        with pytest.raises(KafkaError) as raised:
            inspect(batch, **bounds)
        assert raised.value.error_code is ErrorCode.invalid_timestamp
    inspect(build_batch([SimpleRecord(b"k")]), earliest_ms=50)


def test_offsets_with_gaps_and_wrong_counts_are_refused() -> None:
    """From a producer they can only be mistakes."""
    with pytest.raises(KafkaError) as raised:
        inspect(build_batch([SimpleRecord(b"k", offset=0), SimpleRecord(b"k", offset=2)]))
    assert raised.value.error_code is ErrorCode.invalid_record
    batch = build_batch([SimpleRecord(b"k")] * 3)
    with pytest.raises(KafkaError):
        inspect_records(batch[HEADER_BYTES:], read_header(batch)._replace(record_count=2), require_keys=False)


def test_headers_that_do_not_fill_their_record_are_refused() -> None:
    """Readers who ask for headers would end at such a record, and never come past it."""
    batch = bytearray(build_batch([SimpleRecord(b"k", b"v", (("h", b"1234"),))]))
    batch[-5] -= 2  # the value of the header is one byte shorter than its record
    with pytest.raises(KafkaError, match="headers do not fill") as raised:
        inspect(bytes(batch), require_keys=True)
    assert raised.value.error_code is ErrorCode.invalid_record
