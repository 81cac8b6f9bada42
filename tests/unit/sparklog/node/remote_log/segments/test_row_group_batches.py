"""Row groups as batches again: a consumer reads the records that were written, whatever they are."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.row_group_batches import row_group_batches
from sparklog.protocol.records.batch import TimestampType, iterate_headers
from tests.unit.sparklog.node.remote_log.segments.rows import (
    END,
    Record,
    batches_of,
    footer_of,
    group_bytes,
    records_of,
    write,
)

CREATE, APPEND = TimestampType
BLOBS = st.none() | st.binary(max_size=40) | st.integers(100, 3_000).map(lambda size: b"x" * size)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
GAPS = st.integers(1, 3) | st.integers(1, 2**33)
TIMES = st.integers(-(2**40), 2**43) | st.just(-1)


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Records of a log, in order, with gaps between them."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for gap in draw(st.lists(GAPS, min_size=1, max_size=40)):
        offset += gap
        record = Record(
            offset,
            draw(TIMES),
            draw(BLOBS),
            draw(BLOBS),
            draw(HEADERS),
            draw(st.sampled_from([CREATE, APPEND])),
        )
        records.append(record)
    return records


@given(
    logs(),
    st.lists(st.integers(0, 45), max_size=4, unique=True).map(sorted),
    st.sampled_from([200, 1_000, 1024 * 1024]),
    st.integers(0, 45),
    st.integers(0, 45),
)
def test_records_of_any_kind_come_back_as_they_were(
    records: list[Record], epochs_at: list[int], max_batch_bytes: int, first: int, last: int
) -> None:
    """Offsets with gaps, nulls, headers, times, their types and leader epochs survive the object store."""
    offsets = [record.offset for record in records]

    def offset_at(row: int) -> int:
        return offsets[row] if row < len(offsets) else offsets[-1] + 1 + row

    epochs = [EpochStart(0, 0), *(EpochStart(2 * row + 1, offset_at(row)) for row in epochs_at)]
    start, end = offset_at(first), offset_at(last)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "segment"
        middle = len(records) // 2
        write(path, records[:middle], records[middle:])
        encoded = batches_of(
            path,
            start_offset=start,
            end_offset=end,
            leader_epochs=epochs,
            max_batch_bytes=max_batch_bytes,
        )
    expected = [
        (max(epoch for epoch, begin in epochs if begin <= record.offset), record)
        for record in records
        if start <= record.offset < end
    ]
    data = encoded.data
    assert records_of(data) == expected
    assert encoded.size_bytes == len(data)
    found = [
        (header.base_offset, header.last_offset, position, header.max_timestamp)
        for position, header in iterate_headers(data)
    ]
    assert list(encoded.positions) == found


def test_batches_are_uncompressed_without_producer_and_within_the_limit(tmp_path: Path) -> None:
    """Consumers get them as they are, of 1 MiB at most: a client's buffers are made for such."""
    path = tmp_path / "segment"
    write(path, [Record(offset, value=bytes(1_000)) for offset in range(5_000)])
    headers = [header for _, header in iterate_headers(batches_of(path).data)]
    assert len(headers) <= 6
    assert {(header.attributes, header.producer_id, header.base_sequence) for header in headers} == {
        (0, -1, -1)
    }
    assert all(header.size_bytes <= 1024 * 1024 for header in headers)


def test_record_larger_than_a_batch_has_one_of_its_own(tmp_path: Path) -> None:
    """A limit must not make a record unreadable."""
    path = tmp_path / "segment"
    write(path, [Record(0), Record(1, value=bytes(5_000)), Record(2)])
    data = batches_of(path, max_batch_bytes=1_000).data
    assert [header.record_count for _, header in iterate_headers(data)] == [1, 1, 1]


def test_append_times_of_many_batches_are_kept(tmp_path: Path) -> None:
    """Under LogAppendTime a batch has one time for all of its records; those of others must not get it."""
    path = tmp_path / "segment"
    records = [Record(offset, 1_000 + offset // 4, timestamp_type=APPEND) for offset in range(12)]
    write(path, records)
    encoded = batches_of(path)
    assert [record for _, record in records_of(encoded.data)] == records
    assert [position.max_timestamp_ms for position in encoded.positions] == [1_000, 1_001, 1_002]


def test_offset_before_all_epochs_has_no_epoch(tmp_path: Path) -> None:
    """A log that an old version wrote knows no epochs; consumers then skip the check of divergence."""
    path = tmp_path / "segment"
    write(path, [Record(0), Record(10)])
    epochs = [EpochStart(4, 10)]
    assert [epoch for epoch, _ in records_of(batches_of(path, leader_epochs=epochs).data)] == [-1, 4]


def test_range_without_records_has_no_batches(tmp_path: Path) -> None:
    """A cut by an unclean election may leave nothing of a row group."""
    path = tmp_path / "segment"
    write(path, [Record(0), Record(10)])
    assert batches_of(path, start_offset=1, end_offset=10) == ((), 0, ())


@pytest.mark.parametrize("damage", ["flipped", "cut", "zeros"])
def test_damaged_row_group_is_refused_and_never_decoded(tmp_path: Path, damage: str) -> None:
    """A ranged read has no CRC of the object; wrong records would look right."""
    path = tmp_path / "segment"
    write(path, [Record(offset, value=b"%d" % offset) for offset in range(1_000)])
    footer = footer_of(path)
    data = bytearray(group_bytes(path, footer, 0))
    match damage:
        case "flipped":
            data[len(data) // 2] ^= 1
        case "cut":
            del data[-1]
        case "zeros":
            data = bytearray(len(data))
    with pytest.raises(CorruptSegmentError, match="segment: row group 0"):
        list(
            row_group_batches(
                bytes(data), footer, 0, start_offset=0, end_offset=END, leader_epochs=[EpochStart(0, 0)]
            )
        )
