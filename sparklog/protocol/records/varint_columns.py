"""Columns of zig-zag varints (see `varints`), read from and written to computed positions."""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.protocol.records.varints import LONGEST_LONG_BYTES, MalformedRecordsError

Int64s: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_ZIGZAG_OF_BYTE: Final = np.array([(raw >> 1) ^ -(raw & 1) for raw in range(128)], dtype=np.int64)


def read_varint_column(
    data: Bytes, positions: Int64s, longest: int = LONGEST_LONG_BYTES
) -> tuple[Int64s, Int64s]:
    """Return the varints at `positions`, and the positions behind them.

    Gathers the first bytes of all rows, then further bytes of the rows with longer varints.

    Raises:
        MalformedRecordsError: a varint has more than `longest` bytes.
        IndexError: a varint extends beyond the end of `data`.
    """
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
    for shift in range(14, 7 * longest, 7):
        more = data[after[rows]]
        raw[rows] |= (more & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[rows] += 1
        rows = rows[more > 0x7F]
        if len(rows) == 0:
            break
    else:
        raise MalformedRecordsError(f"a varint has more than {longest} bytes")
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


class VarintColumn(NamedTuple):
    """Varints to write: zig-zag encoded values, and the size of each in bytes."""

    raw: npt.NDArray[np.uint64]
    sizes: Int64s

    @classmethod
    def of(cls, values: Int64s) -> "VarintColumn":
        raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
        sizes = np.ones(len(values), dtype=np.int64)
        if len(values):
            bound, highest = 1 << 7, int(raw.max())
            while bound <= highest:
                sizes += raw >= np.uint64(bound)
                bound <<= 7
        return cls(raw, sizes)

    def write(self, target: Bytes, positions: Int64s) -> None:
        if not len(self.sizes):
            return
        shortest, longest = int(self.sizes.min()), int(self.sizes.max())
        for index in range(longest):
            seven_bits = (self.raw >> np.uint64(7 * index)).astype(np.uint8)
            if index < shortest - 1:
                target[positions + index] = seven_bits | 0x80
            elif index < shortest and index == longest - 1:
                target[positions + index] = seven_bits
            else:
                seven_bits &= 0x7F
                seven_bits |= (self.sizes > index + 1).view(np.uint8) << 7
                if index < shortest:
                    target[positions + index] = seven_bits
                else:
                    rows = self.sizes > index
                    target[positions[rows] + index] = seven_bits[rows]


def pack_columns(
    columns: list[VarintColumn | int],
) -> tuple[Bytes, Int64s]:
    """Return the columns' bytes row after row, and the start of each row, with the end as the last one.

    An int stands for that byte in every row.

    >>> data, starts = pack_columns([VarintColumn.of(np.array([1, -100])), 0])
    >>> data.tolist(), starts.tolist()
    ([2, 0, 199, 1, 0], [0, 2, 5])
    """
    sizes = sum((column.sizes if isinstance(column, VarintColumn) else 1) for column in columns)
    assert isinstance(sizes, np.ndarray), "at least one column gives the number of rows"
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    data = np.empty(int(starts[-1]), dtype=np.uint8)
    positions = starts[:-1].copy()
    for column in columns:
        if isinstance(column, VarintColumn):
            column.write(data, positions)
            positions += column.sizes
        else:
            data[positions] = column
            positions += 1
    return data, starts
