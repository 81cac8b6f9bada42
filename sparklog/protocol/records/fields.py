"""Positions of the fields of many records, found without a Python object per record.

The length at the start of each record gives the start of the next one, so one bare loop hops through a batch,
and takes records of equal size many at a time (`record_starts`). From there numpy reads one field of all
records at a time (`locate_fields`).

Positions come from bytes that may be wrong even under a good CRC. Every length is checked before it is used,
positions only grow, and each record must end where its length says; so a malformed batch raises
`MalformedRecordsError` and is never read outside its buffer.
"""

from typing import Final, NamedTuple

import numpy as np

from sparklog.protocol.records.batch import SMALLEST_RECORD_BYTES
from sparklog.protocol.records.varint_columns import Bytes, Int64s, read_varint_column
from sparklog.protocol.records.varints import LONGEST_INT_BYTES, MalformedRecordsError, read_varint

_LONG_RUN: Final = 16
"""Runs of fewer records of equal size are not worth a numpy array."""
_LONGEST_RUN: Final = 1024
"""Records of equal size that are taken at a time, which bounds the bytes compared in vain."""
_STRETCH: Final = 256
"""Records of different sizes after which a long run is looked for again."""
_FEW_RECORDS: Final = 16
"""For fewer records, a plain loop is faster than a numpy round for each header."""


class FieldPositions(NamedTuple):
    """Columns of positions (in the bytes read), lengths (-1: null) and values, one row per record."""

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
    """The same for the headers of all records, one row per header, in the records' order."""

    key_positions: Int64s
    key_lengths: Int64s
    value_positions: Int64s
    value_lengths: Int64s


def record_starts(payload: bytes | memoryview, position: int, end: int, count: int) -> Int64s:
    """Return the positions of the `count` records in payload[position:end].

    Raises:
        MalformedRecordsError: they do not end exactly at `end`.
    """
    if not 0 <= count * SMALLEST_RECORD_BYTES <= end - position:
        raise MalformedRecordsError(f"{count} records do not fit {end - position} bytes")
    stretches: list[Int64s] = []
    left = count
    try:
        while left:
            stride, alike = _alike(payload, position, end, min(left, _LONGEST_RUN))
            if alike >= _LONG_RUN:
                starts = np.arange(position, position + alike * stride, stride, dtype=np.int64)
                position += alike * stride
            else:
                starts, position = _hop(payload, position, min(left, _STRETCH))
            stretches.append(starts)
            left -= len(starts)
    except IndexError:
        raise MalformedRecordsError("a record extends beyond its batch") from None
    if position != end:
        raise MalformedRecordsError(f"the records end at byte {position}, their batch at {end}")
    return np.concatenate(stretches) if stretches else np.empty(0, dtype=np.int64)


def _alike(payload: bytes | memoryview, position: int, end: int, most: int) -> tuple[int, int]:
    """Return the size of the record at `position`, and the number of consecutive records of that length.

    Each starts where the one before it ends, so nothing is guessed. Records of equal size (measurements, say)
    follow each other in thousands; their leading bytes are compared in C.
    """
    length, after = read_varint(payload, position, LONGEST_INT_BYTES)
    stride = after - position + length
    beyond = min(end, position + most * stride)
    if length <= 0 or position + stride >= end or payload[position + stride] != payload[position]:
        return stride, 1
    alike = most
    for first in range(position, after):
        opening = bytes(payload[first:beyond:stride])
        alike = min(alike, len(opening) - len(opening.lstrip(opening[:1])))
    return stride, alike


def _hop(payload: bytes | memoryview, position: int, count: int) -> tuple[Int64s, int]:
    """Return the positions of the next `count` records of any size, and the end of the last one."""
    starts = [0] * count
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
                length, position = read_varint(payload, position, LONGEST_INT_BYTES)
                position += max(length, 0)
    return np.array(starts, dtype=np.int64), position


def _lengths(data: Bytes, positions: Int64s, least: int) -> tuple[Int64s, Int64s]:
    """Return the lengths at `positions`, none below `least`: -1 if null is allowed."""
    lengths, after = read_varint_column(data, positions, LONGEST_INT_BYTES)
    if len(lengths) and (lengths.min() < least or lengths.max() > len(data)):
        raise MalformedRecordsError("a length is negative or leaves its batch")
    return lengths, after


def _skip(positions: Int64s, lengths: Int64s) -> Int64s:
    return positions + np.maximum(lengths, 0)


def locate_fields(data: Bytes, starts: Int64s) -> FieldPositions:
    """Return the positions of the fields of the records at `starts` in `data`.

    Raises:
        MalformedRecordsError: a record's fields do not fill it exactly. The bytes behind a header count
            other than 0 are checked by `locate_headers`.
    """
    try:
        lengths, positions = _lengths(data, starts, 0)
        ends = positions + lengths
        timestamp_deltas, positions = read_varint_column(data, positions + 1)  # over the attributes, unused
        offset_deltas, positions = read_varint_column(data, positions, LONGEST_INT_BYTES)
        key_lengths, key_positions = _lengths(data, positions, -1)
        value_lengths, value_positions = _lengths(data, _skip(key_positions, key_lengths), -1)
        header_counts, header_positions = _lengths(data, _skip(value_positions, value_lengths), 0)
    except IndexError:
        raise MalformedRecordsError("a record's fields leave its batch") from None
    # Each header has at least two bytes. For the usual 0 this means: the header count is the record's last
    # byte.
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
    """Return the positions of the headers of records with `counts` headers at `positions`, ending at `ends`.

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
        view = data.data
        for record, position in zip(records.tolist(), at.tolist(), strict=True):
            first_row = int(first_rows[record])
            rows_left = range(first_row + level, first_row + int(counts[record]))
            if _locate_headers_of_one(view, position, rows_left, found) != ends[record]:
                raise MalformedRecordsError("a record's headers do not fill it")
    except IndexError:
        raise MalformedRecordsError("a record's headers leave its batch") from None
    return found


def _locate_headers_of_one(data: memoryview, position: int, rows: range, found: HeaderPositions) -> int:
    for row in rows:
        key_length, position = read_varint(data, position, LONGEST_INT_BYTES)
        if not 0 <= key_length <= len(data):
            raise MalformedRecordsError("a header key's length leaves its batch")
        found.key_lengths[row], found.key_positions[row] = key_length, position
        value_length, position = read_varint(data, position + key_length, LONGEST_INT_BYTES)
        if not -1 <= value_length <= len(data):
            raise MalformedRecordsError("a header value's length leaves its batch")
        found.value_lengths[row], found.value_positions[row] = value_length, position
        position += max(value_length, 0)
    return position
