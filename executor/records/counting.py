"""How many records there are in decompressed bytes, found by their lengths alone and without holding them.

The bytes come in pieces, so that a few kilobytes that stand for gigabytes take the memory of one piece. Each
record begins with its length, a varint; so counting is hopping from one length to the next. Where records
are equally long, as machines write them, a whole run of equal lengths is hopped over at once: that the byte
is the same every so many bytes is seen by C, at a twentieth of what a step of Python costs.
"""

from collections.abc import Iterable
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import SMALLEST_RECORD_BYTES

__all__ = ["check_record_count"]

_LONGEST_LENGTH_BYTES: Final = 5
_SHORTEST_RUN: Final = 16
"""How many equal lengths are looked for at first; twice as many each time that all were equal."""


def check_record_count(pieces: Iterable[bytes | memoryview], record_count: int) -> None:
    """Check that exactly `record_count` records fill `pieces`, which may part anywhere.

    It ends with the record that shows that there are too many.

    Raises:
        KafkaError: INVALID_RECORD: there are more or fewer, or they do not end where the bytes do.
    """
    counted = 0
    to_skip = 0
    """Bytes of the last record that was counted which are still to come."""
    begun = b""
    """The begin of a length that goes on in the next piece."""
    for piece in pieces:
        data = begun + bytes(piece) if begun or type(piece) is not bytes else piece
        begun = b""
        position = to_skip
        size = len(data)
        stride_before = 0
        while position < size and counted <= record_count:
            head = data[position]
            if head < 0x80:
                length_bytes, length = 1, head >> 1
            elif position + 1 < size and (second := data[position + 1]) < 0x80:
                length_bytes, length = 2, (head & 0x7F) >> 1 | second << 6
            else:
                length_bytes, length = _long_length(data, position)
                if not length_bytes:
                    begun = data[position:]
                    position = size
                    break
            stride = length_bytes + length
            if head & 1 or stride < SMALLEST_RECORD_BYTES:
                raise _wrong(f"a record of {-1 if head & 1 else length} bytes, which is none")
            run = 1
            if stride == stride_before:
                run = _equal_lengths(data, position, length_bytes, stride)
            stride_before = stride
            counted += run
            position += run * stride
        to_skip = position - size
        if counted > record_count:
            raise _wrong(f"more than the {record_count} records of which its header speaks")
    if to_skip or begun:
        raise _wrong("a record that goes on after its end")
    if counted != record_count:
        raise _wrong(f"{counted} records, not the {record_count} of which its header speaks")


def _wrong(what: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, f"the batch holds {what}")


def _long_length(data: bytes, position: int) -> tuple[int, int]:
    """Return how many bytes the length at `position` has, and the length; 0 bytes if not all are there."""
    raw = 0
    for index, byte in enumerate(data[position : position + _LONGEST_LENGTH_BYTES]):
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return index + 1, raw >> 1
    if len(data) - position < _LONGEST_LENGTH_BYTES:
        return 0, 0
    raise _wrong("a record whose length has more than five bytes")


def _equal_lengths(data: bytes, position: int, length_bytes: int, stride: int) -> int:
    """Return how many records from `position` on have the length of the first, `stride` apart."""
    looked_for = _SHORTEST_RUN
    while True:
        end = position + looked_for * stride
        run = looked_for
        for index in range(length_bytes):
            heads = data[position + index : end : stride]
            run = min(run, len(heads) - len(heads.lstrip(heads[:1])))
        if run < looked_for or end >= len(data):
            return run
        looked_for *= 2
