"""The footer: row groups are found by offset, from a few bytes at the object's end."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter, open_segment
from sparklog.node.remote_log.segments.segment_format import SCHEMA
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults
from tests.unit.sparklog.node.remote_log.segments.rows import Record, footer_of, group_bytes, write

WIDE = bytes(5 * 1024 * 1024)
"""Two of them do not fit a row group."""


def test_row_groups_have_the_bounds_of_their_records(tmp_path: Path) -> None:
    """Times need not be in order, and may be before 1970."""
    path = tmp_path / "segment"
    write(path, [Record(3, 50, value=WIDE), Record(7, -20), Record(9, 40, value=WIDE), Record(12, 10)])
    first, second = footer_of(path).row_groups
    assert first[:4] == (3, 7, -20, 50)
    assert second[:4] == (9, 12, 10, 40)
    assert (first.record_count, second.record_count) == (2, 2)
    assert first.end <= second.start


def test_row_group_is_found_by_offset(tmp_path: Path) -> None:
    """A fetch in a gap gets the next record."""
    path = tmp_path / "segment"
    write(path, [Record(3, 50, value=WIDE), Record(9, 40, value=WIDE), Record(12, 60, value=WIDE)])
    footer = footer_of(path)
    assert [footer.group_with(offset) for offset in (0, 3, 4, 9, 12, 13)] == [0, 0, 1, 1, 2, None]


@pytest.mark.parametrize("groups", [1, 1_000])
def test_footer_is_read_from_the_end_of_an_object(tmp_path: Path, groups: int) -> None:
    """One request for a usual one; one with very many row groups takes two, and not the whole object."""
    path = tmp_path / "segment"
    with pq.ParquetWriter(path, SCHEMA, store_schema=False) as writer:
        writer.add_key_value_metadata({"sparklog.format": "1"})
        for number in range(groups):
            rows = pa.Table.from_pylist(
                [{"partition": 0, "offset": number, "timestamp": 0, "timestampType": 0}], SCHEMA
            )
            writer.write_table(rows)
    data = path.read_bytes()

    async def read() -> tuple[SegmentFooter, FaultyStore]:
        store = FaultyStore(MemoryStore(), StoreFaults(), seed=0)
        await store.create("segments/a", path)
        return (await open_segment(store, "segments/a", len(data))).footer, store

    footer, store = asyncio.run(read())
    assert len(footer.row_groups) == groups
    assert len(store.calls) - 1 == (1 if groups == 1 else 2)
    assert footer.row_groups == footer_of(path).row_groups


def test_row_group_is_read_from_its_range_alone(tmp_path: Path) -> None:
    """The range of the footer is all that a reader fetches."""
    path = tmp_path / "segment"
    write(path, [Record(3, value=WIDE), Record(9, value=WIDE)])
    footer = footer_of(path)
    assert [len(group_bytes(path, footer, index)) for index in (0, 1)] == [
        group.end - group.start for group in footer.row_groups
    ]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"", "does not end as a Parquet file"),
        (b"nothing like it", "does not end as a Parquet file"),
        (b"\xff\xff\xff\x7fPAR1", "8 are there"),
        (b"\x04\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00PAR1", "cannot be read"),
    ],
)
def test_object_that_is_no_segment_is_refused_by_name(tail: bytes, reason: str) -> None:
    """A bucket has other objects, too, and objects may be damaged."""
    with pytest.raises(CorruptSegmentError, match=reason) as refused:
        SegmentFooter.parse(tail, "segments/a")
    assert "segments/a" in str(refused.value)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [({}, "no remote segment"), ({b"sparklog.format": b"2"}, "a newer one wrote it")],
)
def test_parquet_of_others_and_of_later_versions_is_refused(
    tmp_path: Path, metadata: dict[bytes, bytes], reason: str
) -> None:
    """A later format may mean its columns otherwise; reading it as this one would give wrong records."""
    path = tmp_path / "segment"
    pq.write_table(SCHEMA.with_metadata(metadata).empty_table(), path)
    with pytest.raises(CorruptSegmentError, match=reason):
        footer_of(path)


def test_manifest_with_a_wrong_size_is_noticed(tmp_path: Path) -> None:
    """The end of the object is where its size says; elsewhere there is no footer."""
    path = tmp_path / "segment"
    written = write(path, [Record(offset) for offset in range(10)])

    async def read(size_bytes: int) -> SegmentFooter:
        store = MemoryStore()
        await store.create("segments/a", path)
        return (await open_segment(store, "segments/a", size_bytes)).footer

    for size_bytes in (0, 7, 100, written.size_bytes - 1):
        with pytest.raises(CorruptSegmentError, match="segments/a"):
            asyncio.run(read(size_bytes))
