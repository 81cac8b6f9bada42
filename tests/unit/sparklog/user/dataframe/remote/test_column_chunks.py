"""Only the bytes of the columns that are asked for are read, in few requests."""

from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.user.dataframe.remote.history_reader import ColumnChunks, chunks_of, read_rows
from tests.unit.sparklog.node.remote_log.segments.rows import Record, footer_of, write

WIDE = bytes(3_000_000)
RECORDS = [Record(number, key=b"%d" % number, value=WIDE) for number in range(9)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A segment of several row groups."""
    path = tmp_path / "segment"
    write(path, RECORDS)
    assert len(footer_of(path).row_groups) > 2
    return path


def planned(path: Path, *columns: str) -> list[ColumnChunks]:
    footer = footer_of(path)
    return list(chunks_of(footer, range(len(footer.row_groups)), frozenset(columns)))


def rows_of(path: Path, chunks: ColumnChunks, *columns: str) -> pa.Table:
    data = [path.read_bytes()[start:end] for start, end in chunks.ranges]
    return read_rows(footer_of(path), chunks, data, columns, check_crcs=True)


def test_one_small_column_of_all_row_groups_is_one_unit(path: Path) -> None:
    """Its rows are worth a request together; the wide column is left out."""
    (chunks,) = planned(path, "offset")
    assert chunks.row_groups == tuple(range(len(footer_of(path).row_groups)))
    assert rows_of(path, chunks, "offset").column("offset").to_pylist() == list(range(9))


def test_wide_columns_are_read_a_row_group_at_a_time(path: Path) -> None:
    """A task holds a few row groups, not a segment."""
    units = planned(path, "value", "key", "headers")
    assert [len(each.row_groups) for each in units[:-1]] == [1] * (len(units) - 1)
    values = [
        row
        for each in units
        for row in rows_of(path, each, "key", "value", "headers").select(["key", "value"]).to_pylist()
    ]
    assert values == [{"key": each.key, "value": each.value} for each in RECORDS]


def test_damaged_chunk_is_an_error_with_the_name_of_the_segment(path: Path) -> None:
    """Wrong rows would be worse: the page's checksum finds it."""
    (chunks,) = planned(path, "key")
    data = [bytearray(path.read_bytes()[start:end]) for start, end in chunks.ranges]
    data[0][-2] ^= 1
    with pytest.raises(CorruptSegmentError, match=path.name):
        read_rows(footer_of(path), chunks, [bytes(each) for each in data], ["key"], check_crcs=True)
