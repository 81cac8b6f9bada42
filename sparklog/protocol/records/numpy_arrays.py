"""Numpy arrays as Arrow columns and back, over the same memory.

pyarrow's own ways (`pa.array`, `pa.scalar`, `Array.to_numpy`) import pandas wherever it is installed: 25 MiB
of memory and half a second of a broker that has no other use for it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.protocol.records.varint_columns import Int64s


def column_of(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of a type of their width; truth values as one of booleans."""
    values = np.packbits(numbers, bitorder="little") if pa.types.is_boolean(kind) else numbers
    return pa.Array.from_buffers(
        kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))]
    )


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return a column of integers or timestamps, none of them null."""
    assert column.null_count == 0, "null is no number"
    return _numbers(column)


def int64s_of(column: pa.Array) -> Int64s:
    """Return a column of integers or timestamps, with 0 for null, as 64 bits each."""
    numbers: Int64s = _numbers(column).astype(np.int64)
    if column.null_count:
        numbers[nulls_of(column)] = 0
    return numbers


def scalar_of(data: bytes) -> pa.Scalar:
    bounds = np.array([0, len(data)], dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])[0]


def nulls_of(column: pa.Array) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.zeros(len(column), dtype=np.bool_)
    validity = column.buffers()[0]
    if validity is None:  # a column of the null type
        return np.ones(len(column), dtype=np.bool_)
    valid = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
    nulls: npt.NDArray[np.bool_] = valid[column.offset : column.offset + len(column)] == 0
    return nulls


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    width_bytes = column.type.bit_width // 8
    values = column.buffers()[1]
    if values is None:
        return np.zeros(len(column), dtype=f"i{width_bytes}")
    return np.frombuffer(values, dtype=f"i{width_bytes}")[column.offset : column.offset + len(column)]
