"""Records as most producers write them: up to 8,191 bytes, without headers, of any sizes.

A record's first eight bytes hold its length, timestamp and offset delta, so one masked comparison checks
these of all records. The offset delta is known in advance, and where the key begins follows from the index
and the size of the timestamp. A length below 64 has one byte less than others: these records are compared as
if they began a byte sooner. Records that are found here are valid; for others the answer is None, and
`walk_columns` reads them.

The chain of record lengths has to be followed before anything is compared. Large records are few, and a loop
does it. Small ones are found by the zeros around their beginnings, the header count of the one before and
their own attributes, which is a guess that their lengths then confirm.
"""

from bisect import bisect_left
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from sparklog.executor.records.walk_columns import SHORT_VARINTS, SIZE_BITS, SIZE_MASK
from sparklog.protocol.records.batch import SMALLEST_RECORD_BYTES
from sparklog.protocol.records.varint_columns import Int64s

FEWEST: Final = 32
"""A loop reads fewer records sooner."""
_FIRST_LARGE_BYTES: Final = 600
_SMALL_BYTES: Final = 96
"""Small records may have several times the size of the first one: so much is looked through for each."""
_MARKS_A_RECORD: Final = 4
"""Where zeros are more frequent, they tell nothing, and a loop goes on from length to length."""
_OFFSETS: Final = 8_192
"""Offset deltas from here on have three bytes."""
_TIMESTAMP_POSITION: Final = 3
_TIMESTAMP_SHIFT: Final = 24
_GOES_ON: Final = 0x80
_LENGTH: Final = 1 | _GOES_ON | _GOES_ON << 8
"""The sign of a record's length, and which of its bytes go on."""
_SHORT_LENGTH: Final = 1 | _GOES_ON
"""The same of a length of one byte."""
_SHORTEST: Final = 2 * (SMALLEST_RECORD_BYTES - 1)
"""The least of those bytes: zeros among values are no lengths."""
_LONG_TIMESTAMP: Final = _GOES_ON << _TIMESTAMP_SHIFT
_NEGATIVE_TIMESTAMP: Final = 1 << _TIMESTAMP_SHIFT
_BEYOND: Final = 1 << 40
"""Leads out of every batch."""

_SHORT: Final = SHORT_VARINTS & SIZE_MASK
_VALUES: Final = SHORT_VARINTS >> SIZE_BITS
_ADVANCES: Final = np.where((_SHORT == 0) | (_VALUES < -1), _BEYOND, _SHORT + np.maximum(_VALUES, 0))
"""For each two bytes the size of a varint with the bytes that it announces."""
_STEPS: Final = [
    [1 + (head >> 1)] * 256
    if head < _GOES_ON
    else [2 + ((head & 0x7F) >> 1) + (second << 6) for second in range(_GOES_ON)]
    for head in range(256)
]
"""From a record to the next one, by its first two bytes."""


class _Layout(NamedTuple):
    """The expected first eight bytes of a record, by its index.

    The second half of each column is for timestamps of two bytes.
    """

    mask: Int64s
    expected: Int64s
    key_position: Int64s


def _layout() -> _Layout:
    indices = np.arange(_OFFSETS)
    raw = 2 * indices
    is_short = indices < 64
    offsets = np.where(is_short, raw, raw & 0x7F | _GOES_ON | raw >> 7 << 8)
    offset_mask = np.where(is_short, 0xFF, 0xFFFF)
    offset_bytes = np.where(is_short, 1, 2)
    short, long = _TIMESTAMP_SHIFT + 8, _TIMESTAMP_SHIFT + 16
    goes_on = _LONG_TIMESTAMP | _LONG_TIMESTAMP << 8
    return _Layout(
        np.concatenate(
            (
                offset_mask << short | _LONG_TIMESTAMP | _LENGTH,
                offset_mask << long | goes_on | _LENGTH,
            )
        ),
        np.concatenate((offsets << short | _GOES_ON, offsets << long | _LONG_TIMESTAMP | _GOES_ON)),
        np.concatenate((_TIMESTAMP_POSITION + 1 + offset_bytes, _TIMESTAMP_POSITION + 2 + offset_bytes)),
    )


_LAYOUT: Final = _layout()
_MASK_OF_ALIKE: Final = _LAYOUT.mask | _NEGATIVE_TIMESTAMP
_EXPECTED: Final = _LAYOUT.expected.tobytes()

_Chain: TypeAlias = tuple[Int64s, Int64s, Int64s]
"""Where records begin, each where the one before ends; the first eight bytes of each; its last byte, a 0."""


class UsualRecords(NamedTuple):
    """A stretch of valid records."""

    end: int
    record_count: int
    lowest_delta: int
    """At most the lowest timestamp delta, and 0 if none is negative."""
    highest_delta: int
    has_null_key: bool
    """Only looked for where keys are required."""


def read_usual(
    data: bytes, position: int, most: int, first_index: int, *, require_keys: bool
) -> UsualRecords | None:
    """Read whole records from `position` on, at most `most`, of which the first has `first_index`."""
    most = min(most, _OFFSETS - first_index)
    size = len(data)
    if most < FEWEST or size - position < FEWEST * SMALLEST_RECORD_BYTES:
        return None
    head, second = data[position], data[position + 1]
    if head >= _GOES_ON and second >= _GOES_ON:
        return None
    record_bytes = _STEPS[head][second]
    if position + record_bytes > size or data[position + record_bytes - 1]:
        return None
    words = np.ndarray((size - 7,), dtype="<i8", buffer=data, strides=(1,))
    pairs = np.ndarray((size - 1,), dtype="<u2", buffer=data, strides=(1,))
    try:
        if record_bytes < _FIRST_LARGE_BYTES:
            chain = _chain_by_zeros(data, words, position, most, record_bytes)
        else:
            chain = _chain(data, words, position, most)
        if chain is None:
            return None
        starts, begins, lasts = chain
        times = _check_begins(data, *_aligned(starts, begins), first_index)
        if times is None:
            return None
        at, lowest, highest = times
        keys = pairs[at]
        at += _ADVANCES[keys]
        at += _ADVANCES[pairs[at]]
    except IndexError:
        return None
    if at.tobytes() != lasts.tobytes():
        return None
    has_null_key = require_keys and bool((SHORT_VARINTS[keys] < 0).any())
    return UsualRecords(int(lasts[-1]) + 1, len(starts), lowest, highest, has_null_key)


def _chain(data: bytes, words: Int64s, position: int, most: int) -> _Chain | None:
    edges = [position]
    try:
        for _ in repeat(None, most):
            position += _STEPS[data[position]][data[position + 1]]
            edges.append(position)
    except IndexError:
        pass
    if position > len(data):
        edges.pop()
    if len(edges) <= FEWEST:
        return None
    positions = np.array(edges, dtype=np.int64)
    starts, lasts = positions[:-1], positions[1:] - 1
    if np.frombuffer(data, dtype=np.uint8)[lasts].tobytes().strip(b"\0"):
        return None
    return starts, words[starts], lasts


def _chain_by_zeros(data: bytes, words: Int64s, position: int, most: int, record_bytes: int) -> _Chain | None:
    size = len(data)
    stop = min(position + most * max(record_bytes * 5 // 4, _SMALL_BYTES), size - 5)
    last = position + record_bytes - 1  # of the first record
    zeros = np.frombuffer(data, dtype=np.uint8)[last:stop] == 0
    # A header count, one or two bytes of length, attributes.
    marks = zeros[:-3] & (zeros[2:-1] | zeros[3:])
    starts = marks.nonzero()[0]
    if len(starts) > _MARKS_A_RECORD * most:
        return _chain(data, words, position, most)
    starts += last + 1
    starts = np.concatenate(([position], starts))
    begins = words[starts]
    ends = _ADVANCES[begins.astype(np.uint16)]
    ends += starts
    if ends[:-1].tobytes() != starts[1:].tobytes():
        # Zeros among keys and values; they are no lengths, or no record begins where these would lead.
        leads_on = marks[np.minimum(ends - (last + 1), len(marks) - 1)] | (ends == size)
        is_short = (begins & _SHORT_LENGTH == 0) & (begins & 0xFF >= _SHORTEST)
        leads_on &= is_short | (begins & _LENGTH == _GOES_ON)
        starts, begins, ends = starts[leads_on], begins[leads_on], ends[leads_on]
        wrong = (ends[:-1] != starts[1:]).nonzero()[0]
        if len(starts) == 0 or starts[0] != position:
            return None
        if len(wrong):
            count = int(wrong[0]) + 1
            starts, begins, ends = starts[:count], begins[:count], ends[:count]
    starts, begins, ends = starts[:most], begins[:most], ends[:most]
    if ends[-1] > size or data[ends[-1] - 1]:
        starts, begins, ends = starts[:-1], begins[:-1], ends[:-1]
    return (starts, begins, ends - 1) if len(starts) >= FEWEST else None


def _aligned(starts: Int64s, begins: Int64s) -> tuple[Int64s, Int64s]:
    """Return positions and first eight bytes of records as if all their lengths had two bytes."""
    is_long = begins & _GOES_ON
    if is_long.all():
        return starts, begins
    is_short = is_long == 0
    shifted = begins << 8
    shifted |= begins & 1
    shifted |= _GOES_ON
    return starts - is_short, np.where(is_short, shifted, begins)


def _check_begins(
    data: bytes, starts: Int64s, begins: Int64s, first_index: int
) -> tuple[Int64s, int, int] | None:
    """Return where keys begin, and the lowest and the highest timestamp delta."""
    count = len(starts)
    first, last = data[int(starts[0]) + _TIMESTAMP_POSITION], data[int(starts[-1]) + _TIMESTAMP_POSITION]
    checked = None
    if first ^ last < _GOES_ON:
        checked = _check_alike(starts, begins, first_index, is_long=first >= _GOES_ON)
    elif first < last:
        turn = bisect_left(
            range(count), 1, key=lambda index: data[int(starts[index]) + _TIMESTAMP_POSITION] >> 7
        )
        before = _check_alike(starts[:turn], begins[:turn], first_index, is_long=False)
        after = _check_alike(starts[turn:], begins[turn:], first_index + turn, is_long=True)
        checked = before and after and (np.concatenate((before[0], after[0])), 0, max(before[2], after[2]))
    return checked or _check_mixed(starts, begins, first_index)


def _check_alike(
    starts: Int64s, begins: Int64s, first_index: int, *, is_long: bool
) -> tuple[Int64s, int, int] | None:
    """Return as `_check_begins` for timestamps of one size, none before the batch's first."""
    first = first_index + _OFFSETS if is_long else first_index
    after = first + len(starts)
    if (begins & _MASK_OF_ALIKE[first:after]).tobytes() != _EXPECTED[8 * first : 8 * after]:
        return None
    latest = int((begins & ((0xFFFF if is_long else 0xFF) << _TIMESTAMP_SHIFT)).max()) >> _TIMESTAMP_SHIFT
    return starts + _LAYOUT.key_position[first:after], 0, int(_VALUES[latest])


def _check_mixed(starts: Int64s, begins: Int64s, first_index: int) -> tuple[Int64s, int, int] | None:
    """Return as `_check_begins`, for timestamps in any order."""
    which = begins & _LONG_TIMESTAMP
    which >>= 18  # to _OFFSETS, or 0
    which += np.arange(first_index, first_index + len(starts))
    if (begins & _LAYOUT.mask[which]).tobytes() != _LAYOUT.expected[which].tobytes():
        return None
    deltas = SHORT_VARINTS[(begins >> _TIMESTAMP_SHIFT).astype(np.uint16)]
    at = starts + _LAYOUT.key_position[which]
    return at, int(deltas.min()) >> SIZE_BITS, int(deltas.max()) >> SIZE_BITS
