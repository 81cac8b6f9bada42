"""The header of a record batch: reading, checking and stamping it, all that a broker does to records.

A batch on disk and on the wire (message format v2, KIP-98), big-endian:

    position  bytes  field
           0      8  base_offset               assigned by the leader, outside the CRC
           8      4  batch_length              bytes after this field, so 12 less than the batch
          12      4  partition_leader_epoch    assigned by the leader, outside the CRC
          16      1  magic                     2
          17      4  crc                       CRC-32C of everything from `attributes` to the end
          21      2  attributes                0-2 codec, 3 append time, 4 transactional, 5 control, 6 horizon
          23      4  last_offset_delta
          27      8  base_timestamp            ms; the records hold deltas to it; with bit 6 delete horizon
          35      8  max_timestamp             ms
          43      8  producer_id               -1: not idempotent
          51      2  producer_epoch
          53      4  base_sequence
          57      4  record_count
          61         records, compressed as a whole

A leader calls `validate_produced` on a client's batch, examines the records (`sparklog.executor.records`),
which may change the header's max_timestamp, then writes `STAMP` followed by the batch from byte 16 on,
untouched. With message.timestamp.type=LogAppendTime it writes `stamp_with_append_time(...)` followed by the
batch from byte 61 on.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.codecs import Codec, codec_of
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
assert HEADER.size == HEADER_BYTES
STAMP: Final = Struct(">qii")
STAMP_BYTES: Final = 16
"""Bytes that a leader replaces: base offset, length, leader epoch."""
LENGTH_OVERHEAD: Final = 12
"""Bytes of a batch that `batch_length` does not count."""
CRC_START: Final = 21
"""The first byte that the CRC covers."""
SMALLEST_RECORD_BYTES: Final = 7
"""A record is at least six varints of a byte each and its attributes."""
MAGIC: Final = 2

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1

CODEC_BITS: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_ATTRIBUTES_ON: Final = Struct(">hiqqqhii")
_FIRST_ZSTD_PRODUCE_VERSION: Final = 7
_SMALLEST_LENGTH_EVER: Final = 14
"""A smaller length is not a batch of any message format; Kafka then answers CORRUPT_MESSAGE."""


class TimestampType(IntEnum):
    """Origin of the records' timestamps, numbered as in Spark's `timestampType` column."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class CorruptBatchError(KafkaError):
    """Bytes are not a record batch, or are damaged."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, unchanged (`-1` as on the wire)."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Length of the batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record (inclusive; compaction keeps it even if that record is removed)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Codec of the records; raises UNSUPPORTED_COMPRESSION_TYPE for an unassigned number."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers (transaction ends, leader changes) instead of data."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> TimestampMs | None:
        """Time from which its tombstones and markers may be removed (KIP-534); None before a cleaning."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, wrapped; -1 without a sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number `count` records after `sequence`: 0 follows 2,147,483,647.

    >>> sequence_after(2**31 - 1, 1)
    0
    """
    return (sequence + count) & 0x7FFFFFFF


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Return the header that starts at `position`; only its length is checked, not its fields.

    Raises:
        CorruptBatchError: fewer than 61 bytes follow `position`.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptBatchError(
            f"{len(buffer) - position} bytes at position {position} are not a batch: its header has 61"
        )
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def batch_at(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader | None:
    """Return the header of the batch at `position`, or None if the batch is incomplete.

    A fetch response may end in the middle of a batch, and so may a log after a crash.

    Raises:
        CorruptBatchError: the length cannot be a batch's, or the magic is unknown.
        KafkaError: UNSUPPORTED_FOR_MESSAGE_FORMAT for the formats before v2.
    """
    available_bytes = len(buffer) - position
    if available_bytes < HEADER_BYTES:
        if available_bytes >= LENGTH_OVERHEAD:
            batch_length = int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True)
            if batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
                raise _impossible_length(batch_length, position)
        return None
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise _wrong_magic(header, position)
    if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
        raise _impossible_length(header.batch_length, position)
    return header if header.batch_length + LENGTH_OVERHEAD <= available_bytes else None


def _impossible_length(batch_length: int, position: int) -> CorruptBatchError:
    return CorruptBatchError(f"batch at position {position} has length {batch_length}: the minimum is 49")


def _wrong_magic(header: BatchHeader, position: int) -> KafkaError:
    if header.magic in (0, 1):
        return KafkaError(
            ErrorCode.unsupported_for_message_format,
            f"batch at position {position} is in message format {header.magic}; only format 2 is read",
        )
    return CorruptBatchError(f"batch at position {position} has magic {header.magic}, not {MAGIC}")


def iterate_headers(
    buffer: bytes | bytearray | memoryview, position: int = 0
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch from `position` on; stop at a partial last one.

    CRCs are not checked. Raises what `batch_at` raises.
    """
    while (header := batch_at(buffer, position)) is not None:
        yield position, header
        position += header.batch_length + LENGTH_OVERHEAD


def next_fetch_offset(buffer: bytes | bytearray | memoryview, fetch_offset: Offset) -> Offset:
    """Return the offset from which to continue after a fetch from `fetch_offset` returned `buffer`.

    That is the one after the last whole batch; without one it is `fetch_offset`, which calls for a larger
    fetch or a wait.
    """
    for _, header in iterate_headers(buffer):
        fetch_offset = max(fetch_offset, header.next_offset)
    return fetch_offset


def check_crc(buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Check the CRC of the whole batch at `position`, without copying it.

    Raises:
        CorruptBatchError: the CRC does not match, or `buffer` ends inside the batch.
    """
    end = position + header.batch_length + LENGTH_OVERHEAD
    if end > len(buffer):
        raise CorruptBatchError(
            f"batch at position {position} (offset {header.base_offset}) has {header.size_bytes} bytes, "
            f"{len(buffer) - position} are there"
        )
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    if crc != header.crc:
        raise CorruptBatchError(
            f"batch at position {position} (offset {header.base_offset}) has CRC {crc:#010x}, "
            f"its header says {header.crc:#010x}"
        )


def validate_produced(
    records: bytes | memoryview,
    *,
    max_message_bytes: int,
    produce_version: int = _FIRST_ZSTD_PRODUCE_VERSION,
) -> BatchHeader:
    """Return the header of the one batch that a client may send for a partition.

    Checks the CRC and the header. The records and their timestamps are checked by
    `sparklog.executor.records.examination`.

    Raises:
        CorruptBatchError: impossible length, unknown magic, wrong CRC.
        KafkaError: INVALID_RECORD (not exactly one batch of format 2, offsets not 0 to count - 1, more
            records than its bytes can hold, a control batch, a producer id without sequence),
            MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE.
    """
    total_bytes = len(records)
    if total_bytes < HEADER_BYTES:
        _refuse_short(records)
    header = BatchHeader._make(HEADER.unpack_from(records, 0))
    size_bytes = header.batch_length + LENGTH_OVERHEAD
    if size_bytes != total_bytes or header.magic != MAGIC:
        _refuse_frame(header, total_bytes)
    if size_bytes > max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"batch of {size_bytes} bytes exceeds max.message.bytes, which is {max_message_bytes}",
        )
    count = header.record_count
    attributes = header.attributes
    if (
        header.base_offset != 0
        or count <= 0
        or header.last_offset_delta != count - 1
        or attributes & CONTROL_BIT
        or (header.producer_id > NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_epoch < 0))
        or (not attributes & CODEC_BITS and count * SMALLEST_RECORD_BYTES > total_bytes - HEADER_BYTES)
    ):
        crc = crc32c(memoryview(records)[CRC_START:])
        if crc == header.crc:
            _refuse_fields(header)
        raise _wrong_crc(crc, header)
    if (
        attributes & CODEC_BITS
        and codec_of(attributes) is Codec.ZSTD
        and produce_version < _FIRST_ZSTD_PRODUCE_VERSION
    ):
        raise KafkaError(
            ErrorCode.unsupported_compression_type,
            f"zstd needs Produce version {_FIRST_ZSTD_PRODUCE_VERSION} or newer, this is {produce_version}",
        )
    crc = crc32c(memoryview(records)[CRC_START:])
    if crc != header.crc:
        raise _wrong_crc(crc, header)
    return header


def _wrong_crc(crc: int, header: BatchHeader) -> CorruptBatchError:
    return CorruptBatchError(f"batch has CRC {crc:#010x}, its header says {header.crc:#010x}")


def _refuse_short(records: bytes | memoryview) -> None:
    if len(records) >= LENGTH_OVERHEAD:
        batch_length = int.from_bytes(records[8:12], "big", signed=True)
        if batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise _impossible_length(batch_length, 0)
    raise KafkaError(
        ErrorCode.invalid_record, f"{len(records)} bytes hold no record batch: Produce needs exactly one"
    )


def _refuse_frame(header: BatchHeader, total_bytes: int) -> None:
    """Raise the error for a batch of another format or length than the bytes sent."""
    if header.batch_length < _SMALLEST_LENGTH_EVER:
        raise _impossible_length(header.batch_length, 0)
    if header.magic not in (0, 1, MAGIC):
        raise _wrong_magic(header, 0)
    if header.magic != MAGIC:
        raise KafkaError(
            ErrorCode.invalid_record, f"Produce takes message format {MAGIC}, the batch has {header.magic}"
        )
    if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
        raise _impossible_length(header.batch_length, 0)
    raise KafkaError(
        ErrorCode.invalid_record,
        f"Produce takes exactly one batch a partition: the first has {header.size_bytes} bytes, "
        f"{total_bytes} were sent",
    )


def _refuse_fields(header: BatchHeader) -> None:
    """Raise the error for a header with fields that a client may not set."""
    if header.base_offset != 0:
        reason = f"base offset {header.base_offset} instead of 0"
    elif header.record_count <= 0:
        reason = f"record count {header.record_count}"
    elif header.last_offset_delta != header.record_count - 1:
        reason = f"last offset delta {header.last_offset_delta} for {header.record_count} records"
    elif header.is_control:
        reason = "the control bit, which is for brokers"
    elif header.codec is Codec.NONE and (
        header.record_count * SMALLEST_RECORD_BYTES > header.size_bytes - HEADER_BYTES
    ):
        reason = f"{header.record_count} records in {header.size_bytes - HEADER_BYTES} bytes"
    else:
        reason = (
            f"producer id {header.producer_id} with epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}"
        )
    raise KafkaError(ErrorCode.invalid_record, f"batch has {reason}")


def stamp_with_append_time(
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    header: BatchHeader,
    records: bytes | memoryview,
    append_time_ms: TimestampMs,
) -> bytes:
    """Return the 61 bytes that replace the header of `records`, one batch, under LogAppendTime.

    Every record then has `append_time_ms`. The payload is unchanged, but read once for the CRC.
    """
    stamped = header._replace(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=header.attributes | TIMESTAMP_TYPE_BIT,
        max_timestamp=append_time_ms,
    )
    return header_bytes(stamped, memoryview(records)[HEADER_BYTES:])


def header_bytes(header: BatchHeader, payload: bytes | memoryview) -> bytes:
    """Return the 61 bytes of `header` before `payload`, with length and CRC recomputed."""
    tail = _ATTRIBUTES_ON.pack(*header[5:])
    crc = crc32c(payload, crc32c(tail))
    return (
        STAMP.pack(
            header.base_offset,
            HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
            header.partition_leader_epoch,
        )
        + MAGIC.to_bytes(1, "big")
        + crc.to_bytes(4, "big")
        + tail
    )
