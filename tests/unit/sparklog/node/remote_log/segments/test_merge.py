"""Small segments become one, with the records that their manifest counts and no others."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.node.remote_log.object_store import (
    CorruptSegmentError,
    ObjectMissingError,
    StoreUnavailableError,
)
from sparklog.node.remote_log.segments.merge import merge_segments
from sparklog.node.remote_log.segments.segment_writer import WrittenSegment
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults
from tests.unit.sparklog.node.remote_log.segments.rows import (
    PARTITION,
    TOPIC,
    TOPIC_ID,
    Record,
    batches_of,
    footer_of,
    records_of,
    write,
)


async def stored(
    store: MemoryStore, directory: Path, records: Sequence[Record], base_offset: int, end_offset: int
) -> RemoteSegment:
    """Put records into the store, as a segment of which [base_offset, end_offset) counts."""
    path = directory / f"{base_offset}"
    written = write(path, records)
    name = f"segments/{base_offset}.parquet"
    await store.create(name, path)
    return RemoteSegment(
        name=name,
        base_offset=base_offset,
        end_offset=end_offset,
        record_count=written.record_count,
        size_bytes=written.size_bytes,
        raw_bytes=written.raw_bytes,
        first_timestamp_ms=written.first_timestamp_ms,
        max_timestamp_ms=written.max_timestamp_ms,
        crc32c=written.crc32c,
    )


async def merged(
    store: MemoryStore | FaultyStore, segments: Sequence[RemoteSegment], path: Path
) -> WrittenSegment:
    return await merge_segments(store, segments, path, topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION)


def test_merged_segment_has_the_records_of_all_in_one_row_group(tmp_path: Path) -> None:
    """A hundred pieces of a minute each are one request to read afterwards."""
    pieces = [
        [Record(100 * piece + row, 1_000 - piece, b"k", None, (("h", None),)) for row in range(10)]
        for piece in range(20)
    ]

    async def scenario() -> WrittenSegment:
        store = MemoryStore()
        segments = [
            await stored(store, tmp_path, records, 100 * piece, 100 * piece + 100)
            for piece, records in enumerate(pieces)
        ]
        return await merged(store, segments, tmp_path / "merged")

    written = asyncio.run(scenario())
    path = tmp_path / "merged"
    assert [record for _, record in records_of(batches_of(path).data)] == [
        record for records in pieces for record in records
    ]
    assert len(footer_of(path).row_groups) == 1
    assert written[:1] + written[3:7] == (200, 0, 1_909, 981, 1_000)
    assert written.size_bytes == path.stat().st_size
    assert pq.read_metadata(path).metadata[b"sparklog.topic"] == TOPIC.encode()


def test_records_outside_of_a_segments_window_are_left_out_and_not_fetched(tmp_path: Path) -> None:
    """An unclean election cut a segment in its manifest only; its lost records must not come back."""
    wide = os.urandom(5 * 1024 * 1024)

    async def scenario() -> FaultyStore:
        store = MemoryStore()
        first = [Record(0, value=wide), Record(1, value=wide), Record(2, value=wide)]
        segments = [
            await stored(store, tmp_path, first, 1, 2),
            await stored(store, tmp_path, [Record(2), Record(3), Record(4)], 3, 5),
        ]
        watched = FaultyStore(store, StoreFaults(), seed=0)
        await merged(watched, segments, tmp_path / "merged")
        return watched

    watched = asyncio.run(scenario())
    assert pq.read_table(tmp_path / "merged").column("offset").to_pylist() == [1, 3, 4]
    assert [name for _, name in watched.calls].count("segments/1.parquet") == 2, "the footer, one row group"


def test_failure_while_merging_leaves_no_file(tmp_path: Path) -> None:
    """The merge is tried again later, under another name."""

    async def scenario() -> None:
        store = MemoryStore()
        segments = [await stored(store, tmp_path, [Record(base)], base, base + 1) for base in range(3)]
        broken = FaultyStore(store, StoreFaults(failure_rate=1), seed=0)
        with pytest.raises(StoreUnavailableError):
            await merged(broken, segments, tmp_path / "merged")
        await store.delete(segments[2].name)
        with pytest.raises(ObjectMissingError, match=r"segments/2\.parquet"):
            await merged(store, segments, tmp_path / "merged")

    asyncio.run(scenario())
    assert not (tmp_path / "merged").exists()


def test_merge_that_is_stopped_between_row_groups_leaves_no_file(tmp_path: Path) -> None:
    """The end of a cluster does not wait for gigabytes that are in the store anyway."""

    class StoppedError(Exception):
        pass

    async def play() -> None:
        store = MemoryStore()
        pieces = [
            await stored(store, tmp_path, [Record(first), Record(first + 4)], first, first + 5)
            for first in (0, 5, 10)
        ]
        left = [2]

        def check() -> None:
            left[0] -= 1
            if left[0] < 0:
                raise StoppedError

        path = tmp_path / "merged"
        with pytest.raises(StoppedError):
            await merge_segments(
                store, pieces, path, topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION, check=check
            )
        assert not path.exists()

    asyncio.run(play())


def test_damaged_segment_is_not_merged(tmp_path: Path) -> None:
    """The original is deleted after a merge; damage must not be copied into something that looks sound."""

    async def scenario() -> None:
        store = MemoryStore()
        segments = [await stored(store, tmp_path, [Record(0, value=bytes(range(256)))], 0, 1)]
        data, version = await store.get(segments[0].name)
        await store.replace(segments[0].name, data[:200] + b"\x00\xff" + data[202:], version)
        with pytest.raises(CorruptSegmentError, match=r"segments/0\.parquet"):
            await merged(store, segments, tmp_path / "merged")

    asyncio.run(scenario())
    assert not (tmp_path / "merged").exists()
