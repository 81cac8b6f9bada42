"""Columns over numpy's memory and back."""

import subprocess
import sys

import numpy as np
import pyarrow as pa

from sparklog.protocol.records.numpy_arrays import column_of, int64s_of, nulls_of, numbers_of, scalar_of

SCRIPT = """
import sys
import pyarrow as pa
from sparklog.node.remote_log.segments.segment_format import COLUMNS
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.decode import decode_batches
from sparklog.protocol.records.encode import encode_numbered
from sparklog.protocol.records.numpy_arrays import int64s_of, numbers_of
import numpy as np

records = [SimpleRecord(b"k", b"v" * 20, (("h", b"x"),), 5, 0), SimpleRecord(None, b"w", (), 6, 1)]
data = build_batch(records, base_offset=0, leader_epoch=0)
(rows,) = decode_batches(data, columns=COLUMNS, topic="t", partition=0, saturate_timestamps=True)
((header, payload),) = encode_numbered(
    offsets=numbers_of(rows.column("offset")), timestamps_ms=int64s_of(rows.column("timestamp")) // 1000,
    key=rows.column("key"), value=rows.column("value"), headers=rows.column("headers"),
    batch_size_bytes=1000, begins=np.empty(0, np.int64),
)
print(header.record_count, "pandas" in sys.modules)
"""


def test_numbers_and_truth_values_become_columns_and_numbers_again() -> None:
    """Of slices, too: columns of a fetch are cut where a reader begins."""
    numbers = np.arange(20, dtype=np.int32)[::2]
    assert column_of(numbers, pa.int32()).to_pylist() == numbers.tolist()
    assert column_of(numbers % 4 == 0, pa.bool_()).to_pylist() == (numbers % 4 == 0).tolist()
    assert numbers_of(pa.array([1, 2, 3, 4], pa.int64())[1:3]).tolist() == [2, 3]
    assert numbers_of(pa.array([], pa.int64())).tolist() == []
    assert scalar_of(b"abc").as_py() == b"abc"


def test_nulls_are_zeros_among_numbers_and_are_found() -> None:
    """A null key has no length; the length of the record counts on it."""
    column = pa.array([5, None, 7, None], pa.int32())[1:]
    assert int64s_of(column).tolist() == [0, 7, 0]
    assert nulls_of(column).tolist() == [True, False, True]
    assert nulls_of(column.slice(1, 1)).tolist() == [False]
    assert nulls_of(pa.nulls(2)).tolist() == [True, True]
    assert int64s_of(pa.nulls(2, pa.int64())).tolist() == [0, 0]


def test_encoding_and_decoding_records_does_not_import_pandas() -> None:
    """A broker that copies to an object store would pay 25 MiB for it, and so would its decoder."""
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.split() == ["2", "False"]
