"""Reading, checking and stamping batch headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    STAMP,
    BatchHeader,
    CorruptBatchError,
    TimestampType,
    check_crc,
    header_bytes,
    iterate_headers,
    next_fetch_offset,
    read_header,
    sequence_after,
    stamp_with_append_time,
    validate_produced,
)
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.records.codecs import Codec
from tests.unit.sparklog.protocol.records.samples import JAVA_BATCHES

NOW_MS = 1_700_000_000_000
THREE = [SimpleRecord(b"k", b"v", (), NOW_MS + delta) for delta in range(3)]
BATCH = build_batch(THREE)


def validate(records: bytes, **settings: object) -> BatchHeader:
    arguments: dict[str, object] = {"max_message_bytes": 1_000_000} | settings
    return validate_produced(records, **arguments)  # type: ignore[arg-type]


def changed(batch: bytes = BATCH, **fields: int) -> bytes:
    """Return the batch with other header fields, under a right length and CRC."""
    payload = batch[HEADER_BYTES:]
    return header_bytes(read_header(batch)._replace(**fields), payload) + payload


@pytest.mark.parametrize("codec", Codec)
def test_header_of_java_batch_has_every_field(codec: Codec) -> None:
    """The header is the broker's only view of records: each field must be where Java writes it."""
    batch = JAVA_BATCHES[codec]
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header._replace(batch_length=0, crc=0) == BatchHeader(
        base_offset=7,
        batch_length=0,
        partition_leader_epoch=3,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=3,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 123,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=4,
    )
    assert header.size_bytes == len(batch)
    assert (header.last_offset, header.next_offset, header.codec) == (10, 11, codec)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not (header.is_control or header.is_transactional or header.has_producer_id)
    assert header.last_sequence == -1


def test_last_sequence_at_the_end_of_int32_wraps_to_zero() -> None:
    """A long-lived producer's sequence wraps, and must not look out of order then."""
    header = read_header(build_batch(THREE, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert sequence_after(2**31 - 1, 2) == 1


def test_iteration_stops_at_a_partial_last_batch() -> None:
    """Fetch responses are cut by size, so the last batch is often not whole."""
    later = changed(base_offset=3)
    whole = BATCH + later
    for cut in range(1, len(later) + 1):
        headers = list(iterate_headers(whole[:-cut]))
        assert [position for position, _ in headers] == [0]
    assert [position for position, _ in iterate_headers(whole)] == [0, len(BATCH)]
    assert next_fetch_offset(whole, 0) == 6
    assert next_fetch_offset(whole[:-1], 0) == 3
    assert next_fetch_offset(BATCH[:-1], 5) == 5


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_iteration_over_an_impossible_length_raises(length: int) -> None:
    """A length below a header's would loop forever or walk back."""
    broken = BATCH[:8] + length.to_bytes(4, "big", signed=True) + BATCH[12:]
    with pytest.raises(CorruptBatchError, match=str(length)):
        list(iterate_headers(broken))
    with pytest.raises(CorruptBatchError):
        list(iterate_headers(broken[:30]))


def test_iteration_over_an_old_format_names_it() -> None:
    """Logs of old clusters may still hold formats 0 and 1, which is no corruption."""
    with pytest.raises(KafkaError) as raised:
        list(iterate_headers(BATCH[:16] + b"\x01" + BATCH[17:]))
    assert raised.value.error_code is ErrorCode.unsupported_for_message_format


def test_validation_of_a_good_batch_returns_its_header() -> None:
    """The way of every produced batch."""
    assert validate(BATCH) == read_header(BATCH)
    assert validate(memoryview(BATCH)) == read_header(BATCH)


@pytest.mark.parametrize(
    ("records", "error_code"),
    [
        (b"", ErrorCode.invalid_record),
        (BATCH[:11], ErrorCode.invalid_record),
        (BATCH[:60], ErrorCode.invalid_record),
        (BATCH[:-1], ErrorCode.invalid_record),
        (BATCH + b"\0", ErrorCode.invalid_record),
        (BATCH + BATCH, ErrorCode.invalid_record),
        (BATCH[:8] + b"\0\0\0\x05" + BATCH[12:], ErrorCode.corrupt_message),
        (BATCH[:8] + b"\0\0\0\x05" + BATCH[12:40], ErrorCode.corrupt_message),
        (BATCH[:8] + b"\xff\xff\xff\xff" + BATCH[12:], ErrorCode.corrupt_message),
        (BATCH[:8] + b"\x7f\xff\xff\xff" + BATCH[12:], ErrorCode.invalid_record),
        (BATCH[:16] + b"\0" + BATCH[17:], ErrorCode.invalid_record),
        (BATCH[:16] + b"\1" + BATCH[17:], ErrorCode.invalid_record),
        (BATCH[:16] + b"\3" + BATCH[17:], ErrorCode.corrupt_message),
        (BATCH[:17] + b"\0\0\0\0" + BATCH[21:], ErrorCode.corrupt_message),
        (changed(base_offset=5), ErrorCode.invalid_record),
        (changed(record_count=0, last_offset_delta=-1), ErrorCode.invalid_record),
        (changed(record_count=-1, last_offset_delta=-2), ErrorCode.invalid_record),
        (changed(record_count=4), ErrorCode.invalid_record),
        (changed(last_offset_delta=5), ErrorCode.invalid_record),
        (changed(record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.invalid_record),
        (changed(attributes=0x20), ErrorCode.invalid_record),
        (changed(attributes=0x05), ErrorCode.unsupported_compression_type),
        (changed(producer_id=9), ErrorCode.invalid_record),
        (changed(producer_id=9, producer_epoch=0), ErrorCode.invalid_record),
        (changed(producer_id=9, base_sequence=0), ErrorCode.invalid_record),
    ],
)
def test_validation_of_a_bad_batch_gives_kafkas_error(records: bytes, error_code: ErrorCode) -> None:
    """Clients decide by the code whether to retry, so it must be the one Kafka gives."""
    with pytest.raises(KafkaError) as raised:
        validate(records)
    assert raised.value.error_code is error_code


def test_validation_with_size_bound_refuses_the_first_byte_beyond() -> None:
    """max.message.bytes counts the whole batch."""
    validate(BATCH, max_message_bytes=len(BATCH))
    with pytest.raises(KafkaError) as raised:
        validate(BATCH, max_message_bytes=len(BATCH) - 1)
    assert raised.value.error_code is ErrorCode.message_too_large


def test_validation_of_zstd_before_produce_7_is_refused() -> None:
    """Consumers as old as that producer could not read it (KIP-110)."""
    batch = build_batch(THREE, codec=Codec.ZSTD)
    validate(batch, produce_version=7)
    with pytest.raises(KafkaError) as raised:
        validate(batch, produce_version=6)
    assert raised.value.error_code is ErrorCode.unsupported_compression_type


@pytest.mark.parametrize("position", range(len(BATCH)))
def test_validation_with_any_byte_changed_refuses_or_does_not_matter(position: int) -> None:
    """Only the leader epoch, which the leader overwrites, is under neither CRC nor a check."""
    broken = bytearray(BATCH)
    broken[position] ^= 0x41
    if 12 <= position < 16:
        validate(bytes(broken))
    else:
        with pytest.raises(KafkaError):
            validate(bytes(broken))


@given(st.binary(max_size=200))
def test_validation_of_garbage_raises_a_kafka_error(garbage: bytes) -> None:
    """Whatever a socket brings ends in an error code."""
    with pytest.raises(KafkaError):
        validate(garbage)


def test_stamp_keeps_the_crc_valid() -> None:
    """Offsets and epoch are assigned without touching, or reading, the records."""
    stamped = STAMP.pack(2**40, read_header(BATCH).batch_length, 12) + BATCH[16:]
    header = read_header(stamped)
    check_crc(stamped, 0, header)
    assert header == read_header(BATCH)._replace(base_offset=2**40, partition_leader_epoch=12)


def test_stamp_with_append_time_gives_every_record_that_time() -> None:
    """Consumers must see the broker's time and a CRC that holds."""
    stamped = stamp_with_append_time(50, 2, read_header(BATCH), BATCH, NOW_MS + 777) + BATCH[HEADER_BYTES:]
    header = read_header(stamped)
    check_crc(stamped, 0, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [(record.offset, record.timestamp_ms) for record in read_records(stamped, header)] == [
        (50, NOW_MS + 777),
        (51, NOW_MS + 777),
        (52, NOW_MS + 777),
    ]
