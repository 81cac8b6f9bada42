"""Zig-zag varints of records, one at a time; `varint_columns` processes whole columns.

A varint has seven bits a byte, the lowest first; the high bit is set on all but the last byte. Kafka's
readers refuse more than five bytes for a number of 32 bits and more than ten for one of 64.
"""

from typing import Final

LONGEST_INT_BYTES: Final = 5
LONGEST_LONG_BYTES: Final = 10


class MalformedRecordsError(ValueError):
    """Lengths or counts inside a batch do not add up; the caller knows the batch."""


def append_varint(target: bytearray, value: int) -> None:
    remaining = (value << 1) ^ (value >> 63)
    while remaining > 0x7F:
        target.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    target.append(remaining)


def read_varint(
    buffer: bytes | memoryview, position: int, longest: int = LONGEST_LONG_BYTES
) -> tuple[int, int]:
    """Return the varint at `position`, and the position behind it.

    >>> read_varint(bytes([199, 1]), 0)
    (-100, 2)

    Raises:
        MalformedRecordsError: it has more than `longest` bytes.
        IndexError: it extends beyond the end of `buffer`.
    """
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 0x7F
    for shift in range(7, 7 * longest, 7):
        position += 1
        byte = buffer[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
    raise MalformedRecordsError(f"the varint that ends at byte {position} has more than {longest} bytes")
