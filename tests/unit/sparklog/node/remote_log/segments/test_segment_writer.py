"""A remote segment's file: its figures, its row groups, and what other readers of Parquet see."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from sparklog.node.remote_log.segments.segment_format import SCHEMA
from sparklog.node.remote_log.segments.segment_writer import ROW_GROUP_BYTES, SegmentWriter
from sparklog.protocol.records.batch import iterate_headers
from tests.unit.sparklog.node.remote_log.segments.rows import (
    PARTITION,
    TOPIC,
    TOPIC_ID,
    Record,
    batches_of,
    footer_of,
    rows_of,
    write,
)

NOISE = np.random.default_rng(7).bytes(64 * 1024)


def test_figures_of_a_segment_are_those_of_its_records_and_file(tmp_path: Path) -> None:
    """The manifest takes them over: retention, look-ups by time and checks rely on them."""
    path = tmp_path / "segment"
    written = write(path, [Record(5, 300), Record(9, 100)], [Record(10, 200)])
    data = path.read_bytes()
    assert written._replace(raw_bytes=0) == (3, len(data), 0, 5, 10, 100, 300, crc32c(data), 0)


def test_raw_bytes_are_about_those_of_the_records_in_batches(tmp_path: Path) -> None:
    """A reader decides by them how much it gets."""
    path = tmp_path / "segment"
    records = [
        Record(
            offset,
            1_000 + offset,
            b"key-%d" % offset,
            NOISE[: offset % 300],
            (("h", b"v" * 20),) * (offset % 3),
        )
        for offset in range(5_000)
    ]
    written = write(path, records)
    in_batches = batches_of(path).size_bytes
    assert 0.95 < written.raw_bytes / in_batches < 1.05


def test_row_groups_have_8_mib_whatever_the_pieces(tmp_path: Path) -> None:
    """One ranged read serves a fetch: neither one of 64 MiB nor a hundred of a few KB."""
    path = tmp_path / "segment"
    pieces = [
        [Record(1_000 * piece + row, value=NOISE[:1024]) for row in range(1_000)] for piece in range(20)
    ]
    write(path, *pieces)
    groups = footer_of(path).row_groups
    sizes = [each.raw_bytes for each in groups]
    assert len(groups) == 3
    assert all(0.99 * ROW_GROUP_BYTES < size < 1.01 * ROW_GROUP_BYTES for size in sizes[:-1])
    assert sum(each.record_count for each in groups) == 20_000
    assert [groups[0].first_offset, groups[-1].last_offset] == [0, 19_999]


def test_record_larger_than_a_row_group_has_one_of_its_own(tmp_path: Path) -> None:
    """A record is never divided, and its neighbours do not make its group larger."""
    path = tmp_path / "segment"
    wide = bytes(ROW_GROUP_BYTES + 1)
    write(path, [Record(0), Record(1, value=wide), Record(2), Record(3)])
    assert [each.record_count for each in footer_of(path).row_groups] == [1, 1, 2]


def test_segment_without_records_is_a_file_without_row_groups(tmp_path: Path) -> None:
    """A range of aborted records has nothing to keep; the caller sees it and uploads nothing."""
    path = tmp_path / "segment"
    written = write(path, [])
    assert written.record_count == 0
    assert (written.first_offset, written.last_offset, written.max_timestamp_ms) == (None, None, -1)
    assert footer_of(path).row_groups == ()


def test_offsets_that_do_not_rise_are_refused_and_leave_no_file(tmp_path: Path) -> None:
    """A segment in disorder would hide records from every reader."""
    path = tmp_path / "segment"
    with pytest.raises(ValueError, match="do not rise"):
        write(path, [Record(1), Record(2)], [Record(2)])
    with pytest.raises(ValueError, match="do not rise"):
        write(path, [Record(2), Record(1)])
    assert not path.exists()


def test_failure_of_the_source_is_raised_and_leaves_no_file(tmp_path: Path) -> None:
    """A log that cannot be read must not leave half a segment, least of all one with a footer."""
    path = tmp_path / "segment"
    with (
        pytest.raises(RuntimeError, match="the disk is gone"),
        SegmentWriter.open(path, topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION) as writer,
    ):
        writer.write(rows_of([Record(1)]))
        raise RuntimeError("the disk is gone")
    assert not path.exists()


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """Two copies of one range have two names."""
    path = tmp_path / "segment"
    path.write_text("other")
    with pytest.raises(FileExistsError):
        write(path, [Record(1)])
    assert path.read_text() == "other"


def test_other_readers_of_parquet_see_the_columns_of_the_dataframe_source(tmp_path: Path) -> None:
    """A table over the bucket needs no second copy and no code of ours."""
    path = tmp_path / "segment"
    write(path, [Record(7, 1_234, b"k", None, (("h", b"1"), ("h", None))), Record(8, -1_000)])
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table.column("headers").to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        None,
    ]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1_234_000, -1_000_000]
    metadata = pq.read_metadata(path).metadata
    assert metadata[b"sparklog.topic"] == b"flights"
    assert metadata[b"sparklog.topic.id"] == str(TOPIC_ID).encode()
    assert metadata[b"sparklog.partition"] == b"3"


def test_columns_have_field_ids(tmp_path: Path) -> None:
    """Table formats refer to columns by them, in files that are never written again."""
    path = tmp_path / "segment"
    write(path, [Record(7)])
    schema = pq.read_schema(path)
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [
        b"%d" % number for number in range(1, 8)
    ]
    element = schema.field("headers").type.value_field
    assert element.metadata[b"PARQUET:field_id"] == b"8"
    assert [field.metadata[b"PARQUET:field_id"] for field in element.type] == [b"9", b"10"]


def test_headers_of_batches_are_found_in_order(tmp_path: Path) -> None:
    """The fixtures of this folder read what they write."""
    path = tmp_path / "segment"
    write(path, [Record(offset) for offset in range(3)])
    assert [header.base_offset for _, header in iterate_headers(batches_of(path).data)] == [0]
