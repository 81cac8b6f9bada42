"""Zig-zag varints of whole columns, written at computed places: the other way round of `fields`.

A varint holds seven bits a byte, the lowest first, the high bit set on all but the last byte.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["VarintColumn", "pack_columns"]


class VarintColumn(NamedTuple):
    """Varints to be: zig-zag encoded values, and how many bytes each takes."""

    raw: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: npt.NDArray[np.int64]) -> "VarintColumn":
        """Return the column of `values`."""
        raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
        sizes = np.ones(len(values), dtype=np.int64)
        if len(values):
            bound, highest = 1 << 7, int(raw.max())
            while bound <= highest:
                sizes += raw >= np.uint64(bound)
                bound <<= 7
        return cls(raw, sizes)

    def write(self, target: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> None:
        """Write each varint to its position in `target`."""
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
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the columns' bytes row after row, and where each row starts (one more than there are rows).

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
