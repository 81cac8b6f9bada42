"""Where the fields of many records lie, found without a Python object a record.

The length that opens each record says where the next one starts, so one bare loop hops through a batch
(`record_starts`). From there numpy reads one field of all records at a time (`locate_fields`): a varint
column is a gather of first bytes, and further gathers for the records whose varint goes on.

Positions come from bytes that may be wrong even under a good CRC. Every length is checked before it is
used, positions only grow, and at the end each record must end where its length says; so a wrong batch
raises `MalformedRecordsError` and never reads outside the buffer.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.records.batch import SMALLEST_RECORD_BYTES

__all__ = [
    "Bytes",
    "FieldPositions",
    "HeaderPositions",
    "Int64s",
    "MalformedRecordsError",
    "locate_fields",
    "locate_headers",
    "record_starts",
]

Int64s: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_FEW_RECORDS: Final = 16
"""With fewer, a plain loop is faster than a numpy round for each of their headers."""


class MalformedRecordsError(ValueError):
    """Lengths or counts inside a batch do not add up; the caller knows which batch it was."""


class FieldPositions(NamedTuple):
    """Columns of positions (into the bytes read), lengths (-1: null) and values, one row a record."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    key_positions: Int64s
    key_lengths: Int64s
    value_positions: Int64s
    value_lengths: Int64s
    header_counts: Int64s
    header_positions: Int64s
    ends: Int64s


class HeaderPositions(NamedTuple):
    """The same for the headers of all records, one row a header, in the records' order."""

    key_positions: Int64s
    key_lengths: Int64s
    value_positions: Int64s
    value_lengths: Int64s


def record_starts(payload: bytes | memoryview, position: int, end: int, count: int) -> list[int]:
    """Return where the `count` records in payload[position:end] start.

    Raises:
        MalformedRecordsError: they do not end exactly at `end`.
    """
    if not 0 <= count * SMALLEST_RECORD_BYTES <= end - position:
        raise MalformedRecordsError(f"{count} records cannot be in {end - position} bytes")
    starts = [0] * count
    try:
        for index in range(count):
            starts[index] = position
            length = payload[position]
            if length < 0x80:
                position += 1 + (length >> 1)
            else:
                more = payload[position + 1]
                if more < 0x80:
                    position += 2 + ((length & 0x7F) >> 1) + (more << 6)
                else:
                    position = _after_long_length(payload, position)
    except IndexError:
        raise MalformedRecordsError("a record goes on after the end of its batch") from None
    if position != end:
        raise MalformedRecordsError(f"the records end at byte {position}, their batch at {end}")
    return starts


def _after_long_length(payload: bytes | memoryview, position: int) -> int:
    length, position = _read_varint(payload, position)
    return position + max(length, 0)


def _read_varint(payload: bytes | memoryview | Bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = int(payload[position])
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift > 63:
            raise MalformedRecordsError(f"the varint before byte {position} has more than 10 bytes")


def _varints(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Return the zig-zag varints at `positions`, and the positions after them."""
    first = data[positions]
    after = positions + 1
    going_on = first > 0x7F
    if not going_on.any():
        return _ZIGZAG_OF_BYTE[first], after
    second = data.take(after, mode="clip")  # may be one too far where nothing goes on
    short = (second & 0x7F).astype(np.int16)
    short <<= 7
    short *= going_on
    short |= first & 0x7F
    after += going_on
    going_on &= second > 0x7F
    if not going_on.any():
        return ((short >> 1) ^ -(short & 1)).astype(np.int64), after
    raw = short.astype(np.uint64)
    rows = np.flatnonzero(going_on)
    for shift in range(14, 70, 7):
        more = data[after[rows]]
        raw[rows] |= (more & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[rows] += 1
        rows = rows[more > 0x7F]
        if len(rows) == 0:
            break
    else:
        raise MalformedRecordsError("a varint has more than 10 bytes")
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


_ZIGZAG_OF_BYTE: Final = np.array([(raw >> 1) ^ -(raw & 1) for raw in range(128)], dtype=np.int64)


def _lengths(data: Bytes, positions: Int64s, least: int) -> tuple[Int64s, Int64s]:
    """Return the lengths at `positions`, none below `least`: -1 where null is allowed."""
    lengths, after = _varints(data, positions)
    if len(lengths) and (lengths.min() < least or lengths.max() > len(data)):
        raise MalformedRecordsError("a length is negative or leaves its batch")
    return lengths, after


def _skip(positions: Int64s, lengths: Int64s) -> Int64s:
    return positions + np.maximum(lengths, 0)


def locate_fields(data: Bytes, starts: Int64s) -> FieldPositions:
    """Return where the fields of the records at `starts` lie in `data`.

    Raises:
        MalformedRecordsError: a record's fields do not fill it exactly. What follows a header count other
            than 0 is left to `locate_headers`.
    """
    try:
        lengths, positions = _lengths(data, starts, 0)
        ends = positions + lengths
        timestamp_deltas, positions = _varints(data, positions + 1)  # over the attributes, unused
        offset_deltas, positions = _varints(data, positions)
        key_lengths, key_positions = _lengths(data, positions, -1)
        value_lengths, value_positions = _lengths(data, _skip(key_positions, key_lengths), -1)
        header_counts, header_positions = _lengths(data, _skip(value_positions, value_lengths), 0)
    except IndexError:
        raise MalformedRecordsError("a record's fields leave its batch") from None
    # Two bytes a header at least; for the usual 0 this is: the header count is the record's last byte.
    if (header_positions + 2 * header_counts > ends).any() or (
        (header_positions != ends) & (header_counts == 0)
    ).any():
        raise MalformedRecordsError("a record's fields do not fill it")
    return FieldPositions(
        timestamp_deltas,
        offset_deltas,
        key_positions,
        key_lengths,
        value_positions,
        value_lengths,
        header_counts,
        header_positions,
        ends,
    )


def locate_headers(data: Bytes, counts: Int64s, positions: Int64s, ends: Int64s) -> HeaderPositions:
    """Return where the headers lie of records with `counts` headers at `positions`, ending at `ends`.

    The first headers of all records are read at once, then the second ones, and so on.

    Raises:
        MalformedRecordsError: a record's headers do not fill it exactly.
    """
    total = int(counts.sum())
    found = HeaderPositions(*(np.zeros(total, dtype=np.int64) for _ in HeaderPositions._fields))
    first_rows = np.cumsum(counts) - counts
    records = np.flatnonzero(counts)
    at = positions[records]
    try:
        level = 0
        while len(records) >= _FEW_RECORDS:
            rows = first_rows[records] + level
            found.key_lengths[rows], key_positions = _lengths(data, at, 0)
            found.key_positions[rows] = key_positions
            at = key_positions + found.key_lengths[rows]
            value_lengths, value_positions = _lengths(data, at, -1)
            found.value_lengths[rows] = value_lengths
            found.value_positions[rows] = value_positions
            at = _skip(value_positions, value_lengths)
            level += 1
            last = counts[records] == level
            if (at[last] != ends[records[last]]).any():
                raise MalformedRecordsError("a record's headers do not fill it")
            records, at = records[~last], at[~last]
        for record, position in zip(records.tolist(), at.tolist(), strict=True):
            first_row = int(first_rows[record])
            rows_left = range(first_row + level, first_row + int(counts[record]))
            if _locate_headers_of_one(data, position, rows_left, found) != ends[record]:
                raise MalformedRecordsError("a record's headers do not fill it")
    except IndexError:
        raise MalformedRecordsError("a record's headers leave its batch") from None
    return found


def _locate_headers_of_one(data: Bytes, position: int, rows: range, found: HeaderPositions) -> int:
    for row in rows:
        key_length, position = _read_varint(data, position)
        if not 0 <= key_length <= len(data):
            raise MalformedRecordsError("a header key's length leaves its batch")
        found.key_lengths[row], found.key_positions[row] = key_length, position
        value_length, position = _read_varint(data, position + key_length)
        if not -1 <= value_length <= len(data):
            raise MalformedRecordsError("a header value's length leaves its batch")
        found.value_lengths[row], found.value_positions[row] = value_length, position
        position += max(value_length, 0)
    return position
