"""Batches of a few records, with a Python object for each: metadata log, control batches, tests.

A record inside a batch (every integer a zig-zag varint, but for the attributes byte):

    length  attributes=0  timestamp_delta  offset_delta
    key_length (-1: null) key  value_length (-1: null) value
    header_count  { key_length key  value_length (-1: null) value }

`encode` and `decode` are some twenty times faster for many records.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparklog.protocol.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatchError,
    TimestampType,
    header_bytes,
)
from sparklog.protocol.records.codecs import Codec, compress, decompress
from sparklog.protocol.records.varints import (
    LONGEST_INT_BYTES,
    MalformedRecordsError,
    append_varint,
    read_varint,
)
from sparklog.protocol.types import (
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    or_minus_one,
    unless_minus_one,
)

DECOMPRESSED_LIMIT_BYTES = 256 * 1024 * 1024


class SimpleRecord(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: TimestampMs | None = None
    offset: Offset | None = None
    """Set by `read_records`; for `build_batch` None means the offset after the previous record's."""


def _append_bytes(target: bytearray, value: bytes | None) -> None:
    if value is None:
        target.append(1)  # -1
    else:
        append_varint(target, len(value))
        target += value


def build_batch(
    records: Sequence[SimpleRecord],
    *,
    base_offset: Offset = 0,
    leader_epoch: LeaderEpoch | None = None,
    producer_id: ProducerId | None = None,
    producer_epoch: ProducerEpoch | None = None,
    base_sequence: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return one batch of `records`, which must not be empty; given offsets must rise."""
    assert records, "a batch has at least one record"
    first_timestamp = records[0].timestamp_ms
    base_timestamp = or_minus_one(first_timestamp)
    max_timestamp = base_timestamp
    payload = bytearray()
    offset = base_offset - 1
    for record in records:
        offset = offset + 1 if record.offset is None else record.offset
        timestamp = or_minus_one(record.timestamp_ms)
        max_timestamp = max(max_timestamp, timestamp)
        body = bytearray(1)  # attributes, unused
        append_varint(body, timestamp - base_timestamp)
        append_varint(body, offset - base_offset)
        _append_bytes(body, record.key)
        _append_bytes(body, record.value)
        append_varint(body, len(record.headers))
        for key, value in record.headers:
            _append_bytes(body, key.encode())
            _append_bytes(body, value)
        append_varint(payload, len(body))
        payload += body
    compressed = bytes(payload) if codec is Codec.NONE else compress(codec, bytes(payload), level)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=or_minus_one(leader_epoch),
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0),
        last_offset_delta=offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=or_minus_one(producer_id),
        producer_epoch=or_minus_one(producer_epoch),
        base_sequence=or_minus_one(base_sequence),
        record_count=len(records),
    )
    return header_bytes(header, compressed) + compressed


def _read_bytes(buffer: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(buffer, position, LONGEST_INT_BYTES)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise CorruptBatchError(f"a field of {length} bytes at position {position} leaves its record")
    return buffer[position : position + length], position + length


def _read_headers(
    buffer: bytes, header_count: int, position: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    headers = []
    for _ in range(header_count):
        key, position = _read_bytes(buffer, position, end)
        value, position = _read_bytes(buffer, position, end)
        if key is None:
            raise CorruptBatchError(f"a header before position {position} has no key")
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), position


def read_records(
    buffer: bytes | memoryview, header: BatchHeader, position: int = 0
) -> Iterator[SimpleRecord]:
    """Yield the records at `position` with absolute offsets and timestamps; the CRC is not checked.

    Raises:
        CorruptBatchError: lengths or counts inside do not add up.
        KafkaError: as `codecs.decompress` raises it.
    """
    payload = bytes(memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes])
    if header.codec is not Codec.NONE:
        payload = bytes(decompress(header.codec, payload, DECOMPRESSED_LIMIT_BYTES))
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    size_bytes = len(payload)
    at = 0
    try:
        for _ in range(header.record_count):
            length, at = read_varint(payload, at, LONGEST_INT_BYTES)
            end = at + length
            if length < 0 or end > size_bytes:
                raise CorruptBatchError(f"a record of {length} bytes at position {at} leaves its batch")
            timestamp_delta, at = read_varint(payload, at + 1)
            offset_delta, at = read_varint(payload, at, LONGEST_INT_BYTES)
            key, at = _read_bytes(payload, at, end)
            value, at = _read_bytes(payload, at, end)
            header_count, at = read_varint(payload, at, LONGEST_INT_BYTES)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if header_count:
                if not 0 <= header_count <= end - at:
                    raise CorruptBatchError(f"a record at position {at} claims {header_count} headers")
                headers, at = _read_headers(payload, header_count, at, end)
            if at != end:
                raise CorruptBatchError(f"a record ends at position {at}, its length says {end}")
            timestamp = header.max_timestamp if append_time else header.base_timestamp + timestamp_delta
            yield SimpleRecord(
                key,
                value,
                headers,
                unless_minus_one(timestamp),
                header.base_offset + offset_delta,
            )
    except IndexError:
        raise CorruptBatchError(f"the records end before {header.record_count} are read") from None
    except MalformedRecordsError as error:
        raise CorruptBatchError(str(error)) from None
    if at != len(payload):
        raise CorruptBatchError(f"{len(payload) - at} bytes follow the last record")
