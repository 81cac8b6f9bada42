"""Batches in a memory file: reads by offset and by time."""

import pytest

from sparklog.executor.remote_reads.memory_file import MemoryFile
from sparklog.executor.remote_reads.row_group import RowGroup, gap_region
from sparklog.node.storage.segments.time_lookup import OffsetAndTimestamp
from sparklog.protocol.records.batch import iterate_headers, next_fetch_offset
from sparklog.protocol.records.builder import SimpleRecord, build_batch


def batch(*offsets: int, timestamps: dict[int, int] | None = None) -> bytes:
    records = [
        SimpleRecord(None, bytes(50), (), (timestamps or {}).get(offset, 1_000 + offset), offset)
        for offset in offsets
    ]
    return build_batch(records, base_offset=offsets[0], leader_epoch=3)


def group_of(*batches: bytes) -> RowGroup:
    data = b"".join(batches)
    file = MemoryFile("s#0")
    file.append(batches)
    found = list(iterate_headers(data))
    return RowGroup(
        file,
        [header.last_offset for _, header in found],
        [*(position for position, _ in found), len(data)],
        [header.max_timestamp for _, header in found],
    )


def read(
    group: RowGroup, offset: int, max_bytes: int = 10_000, *, min_one_batch: bool = True
) -> list[int] | None:
    result = group.read(offset, max_bytes=max_bytes, min_one_batch=min_one_batch)
    if result.region is None:
        assert result.next_offset == offset
        return None
    data = result.region.read()
    assert result.next_offset == next_fetch_offset(data, 0)
    return [header.base_offset for _, header in iterate_headers(data)]


def test_read_begins_with_the_first_batch_that_ends_at_the_offset_or_later() -> None:
    """A reader whose position is between two batches is at the later one, or it would stand still."""
    group = group_of(batch(10, 11), batch(20, 25), batch(30))
    assert [read(group, offset) for offset in (5, 10, 11, 12, 20, 22, 26, 30)] == [
        [10, 20, 30],
        [10, 20, 30],
        [10, 20, 30],
        [20, 30],
        [20, 30],
        [20, 30],
        [30],
        [30],
    ]
    assert (read(group, 31), group.end_offset) == (None, 31)


def test_read_gives_whole_batches_up_to_the_bytes_that_are_asked_for() -> None:
    """As of a local log: one batch at least where the answer has no records yet."""
    group = group_of(batch(0), batch(1), batch(2))
    size_bytes = group.size_bytes // 3
    assert read(group, 0, 2 * size_bytes) == [0, 1]
    assert read(group, 1, 2 * size_bytes - 1) == [1]
    assert read(group, 1, size_bytes - 1) == [1]
    assert read(group, 1, size_bytes - 1, min_one_batch=False) is None


def test_record_is_found_by_its_time() -> None:
    """The first in the order of offsets, not of times; offsets below the asked one do not count."""
    group = group_of(batch(0, 1, timestamps={0: 500, 1: 100}), batch(5, 6, timestamps={5: 500, 6: 900}))
    assert group.first_at_or_after(200, 0) == OffsetAndTimestamp(0, 500, 3)
    assert group.first_at_or_after(200, 1) == OffsetAndTimestamp(5, 500, 3)
    assert group.first_at_or_after(501, 0) == OffsetAndTimestamp(6, 900, 3)
    assert group.first_at_or_after(901, 0) is None
    assert group.latest(0) == OffsetAndTimestamp(6, 900, 3)
    assert group_of(batch(0, 1, timestamps={0: 500, 1: 500})).latest(0) == OffsetAndTimestamp(0, 500, 3)


def test_record_without_a_time_is_found_by_none() -> None:
    """It is no answer to a question for a time."""
    group = group_of(batch(0, timestamps={0: -1}))
    assert (group.first_at_or_after(0, 0), group.latest(0)) == (None, None)


@pytest.mark.parametrize(("end", "covered"), [(12, 12), (2**40, 5 + 2**31 - 1)])
def test_gap_is_a_batch_without_records(end: int, covered: int) -> None:
    """A batch has no more offsets than 31 bits count; the next read goes on behind it."""
    region = gap_region(5, end, leader_epoch=7)
    ((_, header),) = iterate_headers(region.read())
    assert (header.base_offset, header.next_offset, header.record_count) == (5, covered, 0)
    assert header.partition_leader_epoch == 7
