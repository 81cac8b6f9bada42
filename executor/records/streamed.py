"""Walking over records that come in pieces, as they are decompressed, without holding them.

Memory holds a piece and the begin of a record; of a record that is larger than `LARGEST_HELD_BYTES` only
lengths are read, and its key, value and headers are passed over.
"""

from collections.abc import Iterator
from typing import Final

from sparklog.executor.records.walk import RecordWalk
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.varints import (
    LONGEST_INT_BYTES,
    LONGEST_LONG_BYTES,
    MalformedRecordsError,
    read_varint,
)

LARGEST_HELD_BYTES: Final = 1024 * 1024
_WORTH_A_WALK_BYTES: Final = 64 * 1024
"""Decompressors give small pieces, too; fewer bytes than that wait for more."""


def walk_pieces(walk: RecordWalk, pieces: Iterator[bytes | memoryview]) -> None:
    """Walk over the records in `pieces`, which may part anywhere.

    Raises:
        KafkaError: what `RecordWalk.take` raises, or the pieces' source.
    """
    held: list[bytes | memoryview] = []
    held_bytes, wanted_bytes = 0, _WORTH_A_WALK_BYTES
    for piece in pieces:
        held.append(piece)
        held_bytes += len(piece)
        if held_bytes < wanted_bytes:
            continue
        data = b"".join(held) if len(held) > 1 else bytes(piece)
        position = walk.take(data)
        rest = data[position:]
        wanted_bytes = max(_record_bytes(rest), _WORTH_A_WALK_BYTES)
        if wanted_bytes > LARGEST_HELD_BYTES:
            rest = _take_large(walk, _Source(rest, pieces))
            wanted_bytes = _WORTH_A_WALK_BYTES
        held, held_bytes = [rest], len(rest)
    if held_bytes:
        data = b"".join(held)
        if walk.take(data) != len(data):
            raise KafkaError(ErrorCode.invalid_record, "the batch ends within a record")


def _record_bytes(begin: bytes) -> int:
    """Return the size of the record whose beginning is given; 0 while it is unknown."""
    try:
        length, at = read_varint(begin, 0, LONGEST_INT_BYTES)
    except IndexError:
        return 0
    except MalformedRecordsError as error:
        raise KafkaError(ErrorCode.invalid_record, f"a record's length: {error}") from error
    return at + length


class _Source:
    """Bytes that are read one by one, or skipped."""

    def __init__(self, data: bytes, pieces: Iterator[bytes | memoryview]) -> None:
        self.data = data
        self.position = 0
        self.passed = 0
        """Bytes that were read or passed over."""
        self._pieces = pieces

    def varint(self, longest: int = LONGEST_INT_BYTES) -> int:
        while len(self.data) - self.position < longest and (piece := next(self._pieces, None)) is not None:
            self.data = self.data[self.position :] + bytes(piece)
            self.position = 0
        value, after = read_varint(self.data, self.position, longest)
        self.passed += after - self.position
        self.position = after
        return value

    def skip(self, count: int) -> None:
        """Skip `count` bytes; none for a length below 0, which is null."""
        count = max(count, 0)
        self.passed += count
        while count > len(self.data) - self.position:
            count -= len(self.data) - self.position
            self.data, self.position = bytes(next(self._pieces, b"")), 0
            if not self.data:
                raise MalformedRecordsError("goes on after the batch's end")
        self.position += count


def _take_large(walk: RecordWalk, source: _Source) -> bytes:
    """Walk over one record; return the bytes read from the source behind it."""
    try:
        length = source.varint()
        begin = source.passed
        source.skip(1)  # attributes
        timestamp_delta = source.varint(LONGEST_LONG_BYTES)
        offset_delta = source.varint()
        key_length = _checked(source.varint(), -1)
        source.skip(key_length)
        source.skip(_checked(source.varint(), -1))
        for _ in range(_checked(source.varint(), 0)):
            source.skip(_checked(source.varint(), 0))
            source.skip(_checked(source.varint(), -1))
            if source.passed - begin > length:
                break
        if source.passed - begin != length:
            raise MalformedRecordsError(f"of {length} bytes has fields of {source.passed - begin}")
    except (MalformedRecordsError, IndexError) as error:
        raise KafkaError(ErrorCode.invalid_record, f"a large record is malformed: {error}") from error
    walk.take_one(timestamp_delta, offset_delta, has_key=key_length >= 0)
    return source.data[source.position :]


def _checked(length: int, least: int) -> int:
    if length < least:
        raise MalformedRecordsError(f"contains a field of length {length}")
    return length
