"""Records of different sizes, read by numpy a field at a time, for which `walk` has no columns of bytes.

Varints of one and two bytes are looked up whole, by the two bytes that lie there; most records have no others
and no headers. Records that fail here are read once more by `sparklog.protocol.records.fields`, which reads
all encodings and names the error.
"""

from typing import Final

import numpy as np

from sparklog.executor.records.walk_few import StretchOfRecords
from sparklog.protocol.records.fields import locate_fields, locate_headers
from sparklog.protocol.records.varint_columns import Bytes, Int64s
from sparklog.protocol.records.varints import MalformedRecordsError

SIZE_BITS: Final = 2
SIZE_MASK: Final = 3


def _short_varints() -> Int64s:
    """Return for each two bytes 4 * the varint at their beginning + its size; 0 for a longer one."""
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    raw = np.where(first < 0x80, first, first & 0x7F | (second & 0x7F) << 7)
    values = (raw >> 1) ^ -(raw & 1)
    sizes = np.where(first < 0x80, 1, 2)
    return np.where((first >= 0x80) & (second >= 0x80), 0, values << SIZE_BITS | sizes)


SHORT_VARINTS: Final = _short_varints()


def read_columns(data: bytes, starts: list[int], first_index: int, most_headers: int) -> StretchOfRecords:
    """Read the whole records that start at `starts`, which are the batch's from `first_index` on.

    More than `most_headers` headers are not looked at.

    Raises:
        MalformedRecordsError: their lengths do not add up, or their offsets do not go on one by one.
    """
    positions = np.array(starts, dtype=np.int64)
    return _read_short(data, positions, first_index) or _read_any(data, positions, first_index, most_headers)


def _read_short(data: bytes, starts: Int64s, first_index: int) -> StretchOfRecords | None:
    pairs = np.ndarray((len(data) - 1,), dtype="<u2", buffer=data, strides=(1,))
    try:
        found = SHORT_VARINTS[pairs[starts]]
        at = starts + (found & SIZE_MASK)
        last = at + (found >> SIZE_BITS) - 1
        at += 1  # attributes
        found = SHORT_VARINTS[pairs[at]]
        at += found & SIZE_MASK
        timestamp_deltas = found >> SIZE_BITS
        found = SHORT_VARINTS[pairs[at]]
        at += found & SIZE_MASK
        offset_deltas = found >> SIZE_BITS
        found = SHORT_VARINTS[pairs[at]]
        at += found & SIZE_MASK
        key_lengths = found >> SIZE_BITS
        at += np.maximum(key_lengths, 0)
        found = SHORT_VARINTS[pairs[at]]
        at += found & SIZE_MASK
        value_lengths = found >> SIZE_BITS
        at += np.maximum(value_lengths, 0)
        header_counts = np.frombuffer(data, dtype=np.uint8)[at]
    except IndexError:
        return None
    lowest_key = int(key_lengths.min())
    if (
        lowest_key < -1
        or value_lengths.min() < -1
        or header_counts.any()
        or (at != last).any()
        or (offset_deltas != np.arange(first_index, first_index + len(starts))).any()
    ):
        return None
    return StretchOfRecords(int(timestamp_deltas.min()), int(timestamp_deltas.max()), lowest_key < 0, 0)


def _read_any(data: bytes, starts: Int64s, first_index: int, most_headers: int) -> StretchOfRecords:
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    fields = locate_fields(array, starts)
    header_count = int(fields.header_counts.sum())
    if 0 < header_count <= most_headers:
        locate_headers(array, fields.header_counts, fields.header_positions, fields.ends)
    if (fields.offset_deltas != np.arange(first_index, first_index + len(starts))).any():
        raise MalformedRecordsError("offsets do not go on one by one")
    timestamps = fields.timestamp_deltas
    return StretchOfRecords(
        int(timestamps.min()), int(timestamps.max()), bool((fields.key_lengths < 0).any()), header_count
    )
