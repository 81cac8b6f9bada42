"""The timestamps of a run of records of one size, compared in their encoded form."""

from typing import Final

from sparklog.protocol.records.varints import read_varint

_NEGATIVE: Final = bytes(range(1, 256, 2))
"""The first bytes of varints below 0."""
_UP_TO: Final = [bytes(range(byte + 1)) for byte in range(256)]
_WITHOUT_MORE: Final = bytes(range(0x80, 0x100))
"""Bytes that another one follows; what is left without them are varints of one byte."""


def extremes_of_run(
    data: bytes, start: int, size_bytes: int, stride: int, count: int
) -> tuple[int, int] | None:
    """Return the least and the largest of `count` timestamp deltas, `stride` apart; the least may be too low.

    The first one is at `start` and has `size_bytes`. None, where columns do not tell: deltas of other sizes
    than the first one, or negative ones that differ, or of three bytes and more.
    """
    columns = [data[at : at + count * stride : stride] for at in range(start, start + size_bytes)]
    if all(column == column[:1] * count for column in columns):
        delta, _ = read_varint(data, start)
        return delta, delta
    low = columns[0]
    if size_bytes > 2 or len(low.translate(None, _NEGATIVE)) < count:
        return None
    if size_bytes == 1:
        highest = _largest(low)
        return (0, highest >> 1) if highest < 0x80 else None
    high = columns[1]
    highest = _largest(high)
    if highest > 0x7F or low.translate(None, _WITHOUT_MORE):
        return None
    since = high.index(highest)
    if high.count(highest) != count - since:
        return None
    return 0, (highest << 6) + ((_largest(low[since:]) & 0x7F) >> 1)


def _largest(column: bytes) -> int:
    """Return the largest byte: mostly the last one, as time goes on."""
    larger = column.translate(None, _UP_TO[column[-1]])
    return max(larger) if larger else column[-1]
