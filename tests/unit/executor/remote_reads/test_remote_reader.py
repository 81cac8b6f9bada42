"""Reads by way of manifest, footer and row group; what they load, and when."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.executor.remote_reads.remote_reader import RemoteReader
from sparklog.node.metrics.histogram import SECONDS, Histogram
from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest
from sparklog.node.storage.file_region import FileRegion
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import iterate_headers
from tests.unit.executor.brokers import until
from tests.unit.executor.remote_reads.lasting_decoder import lasting_decoder
from tests.unit.executor.remote_reads.tiered import GatedStore, Segment, segment, write_segment_object

GROUP_BYTES = 5 * 150
"""A little more than five of the records take as batches."""


class PlainTier:
    def __init__(self, store: GatedStore, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest


async def tier_of(*parts: Segment) -> PlainTier:
    store = GatedStore()
    written = [await write_segment_object(store, "t", number, part) for number, part in enumerate(parts)]
    end = written[-1].end_offset
    epochs = (EpochStart(0, 0),)
    return PlainTier(
        store, Manifest("t", UUID(int=1), 0, 1, 0, 0, end, tuple(written), epochs, None, (), written_ms=0)
    )


class Reading:
    """A reader whose clock stands still unless the test moves it."""

    def __init__(self, tier: PlainTier, **options: Any) -> None:
        self.tier = tier
        self.now_ms = 0
        defaults: dict[str, Any] = {
            "cache_bytes": 1 << 20,
            "max_wait_ms": 500,
            "times": Histogram(SECONDS),
            "least_group_bytes": 0,
            "decoder": lasting_decoder(),
        }
        self.reader = RemoteReader(**{**defaults, **options}, now_ms=lambda: self.now_ms)

    def try_read(self, offset: int, partition: str = "p") -> FileRegion | None:
        found = self.reader.read(partition, self.tier, offset, max_bytes=1 << 20, min_one_batch=True)
        assert found is not None, "the tier has records there"
        return found.region

    async def read(self, offset: int, partition: str = "p") -> FileRegion:
        """Read from `offset` on, waiting for the store as often as it takes."""
        while True:
            found = self.reader.read(partition, self.tier, offset, max_bytes=1 << 20, min_one_batch=True)
            assert found is not None
            if found.region is not None:
                return found.region
            assert found.load is not None
            ended = asyncio.Event()
            found.load.wait(ended.set)
            await asyncio.wait_for(ended.wait(), 15)

    @property
    def group_gets(self) -> int:
        """The ranged GETs of row groups: all but those at an object's end."""
        store = self.tier.store
        return sum(end < len(store.objects[name].data) for name, _, end in store.gets)


@asynccontextmanager
async def reading(*parts: Segment, **options: Any) -> AsyncIterator[Reading]:
    """A reader over a tier of these segments, closed in the end."""
    opened = Reading(await tier_of(*parts), **options)
    try:
        yield opened
    finally:
        await opened.reader.close()


def first_offset(region: FileRegion) -> int:
    return next(iterate_headers(region.read()))[1].base_offset


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(bounded())


def test_reader_loads_nothing_twice_and_only_what_is_asked_for() -> None:
    """A request of an object store costs money and tens of milliseconds."""

    async def test() -> None:
        async with reading(segment(range(20)), segment(range(20, 40))) as it:
            assert first_offset(await it.read(7)) == 5
            assert first_offset(await it.read(7)) == 5
            assert first_offset(await it.read(31)) == 30
            assert len(it.tier.store.gets) == 4
            assert it.group_gets == 2

    run(test)


def test_small_segment_is_read_by_one_request() -> None:
    """Pieces that were copied because they were due are small: a second request would double their cost."""

    async def test() -> None:
        parts = segment(range(5), padding_bytes=0), segment(range(5, 10), padding_bytes=0)
        async with reading(*parts) as it:
            assert first_offset(await it.read(2)) == 0
            assert first_offset(await it.read(5)) == 5
            assert [start for _, start, _ in it.tier.store.gets] == [0, 0]

    run(test)


def test_reader_that_reads_on_finds_the_next_row_group_loaded() -> None:
    """Otherwise each row group costs the store's latency; over the end of a segment as well."""

    async def test() -> None:
        async with reading(segment(range(20)), segment(range(20, 40))) as it:
            await it.read(0)
            assert it.group_gets == 1
            await it.read(5)
            await until(lambda: it.group_gets == 3, "the read-ahead")
            for offset in (10, 15, 20, 25):
                await until(lambda at=offset: it.try_read(at) is not None, "the next group")  # type: ignore[misc]
            await until(lambda: it.group_gets == 7, "the read-ahead")

    run(test)


def test_reader_that_reads_on_for_long_has_several_row_groups_loaded() -> None:
    """The latency of a store may be as long as the reader takes for some of them."""

    async def test() -> None:
        async with reading(segment(range(100), row_group_rows=1), segment(range(100, 120))) as it:
            for offset in range(30):
                await it.read(offset)
            await until(lambda: it.group_gets == 34, "the read-ahead")

    run(test)


def test_reader_that_jumps_is_not_read_ahead_for() -> None:
    """Its next offset is anywhere."""

    async def test() -> None:
        async with reading(segment(range(40))) as it:
            for offset in (0, 12, 3, 30):
                await it.read(offset)
            assert it.group_gets == 3

    run(test)


def test_memory_is_bounded_by_the_cache_and_what_is_being_sent() -> None:
    """A connection that takes its bytes slowly keeps a row group in memory, and the next one waits for it."""

    async def test() -> None:
        async with reading(segment(range(40)), cache_bytes=2 * GROUP_BYTES) as it:
            sent = [await it.read(0), await it.read(10)]
            assert it.reader.memory_bytes <= 2 * GROUP_BYTES
            it.now_ms = 10_000
            assert it.try_read(20) is None
            await asyncio.sleep(0.3)
            assert it.try_read(20) is None
            assert [first_offset(region) for region in sent] == [0, 10]
            del sent
            gc.collect()
            assert first_offset(await it.read(20)) == 20
            assert it.reader.memory_bytes <= 2 * GROUP_BYTES

    run(test)


def test_small_row_groups_count_more_than_their_bytes() -> None:
    """Each takes a descriptor: those of a cache of 256 MiB would be all that a process may have."""

    async def test() -> None:
        async with reading(segment(range(40)), cache_bytes=20_000, least_group_bytes=10_000) as it:
            for offset in (0, 10, 20):
                it.now_ms += 2_000
                await it.read(offset)
            assert it.reader.memory_bytes == 20_000
            await it.read(0)
            assert it.group_gets == 4

    run(test)


def test_offset_below_the_tiers_log_start_is_out_of_range() -> None:
    """Retention has given its records up, and their objects may be gone: they are not skipped in silence."""

    async def test() -> None:
        async with reading(segment(range(40))) as it:
            it.tier.manifest = replace(it.tier.manifest, log_start_offset=7)
            with pytest.raises(KafkaError) as refused:
                it.try_read(6)
            assert refused.value.error_code is ErrorCode.offset_out_of_range
            assert first_offset(await it.read(7)) == 5

    run(test)


def test_store_is_read_no_faster_than_the_quota() -> None:
    """remote.log.manager.fetch.max.bytes.per.second: reads wait, those of cached records do not."""

    async def test() -> None:
        async with reading(segment(range(40)), max_bytes_per_second=10) as it:
            await it.read(0)
            assert it.try_read(20) is None
            await asyncio.sleep(0.3)
            assert it.try_read(20) is None
            assert it.group_gets == 1
            assert first_offset(await it.read(0)) == 0
            it.now_ms = 600_000
            assert first_offset(await it.read(20)) == 20

    run(test)


def test_reader_that_is_closed_ends_what_is_under_way() -> None:
    """Fetches that wait for it are answered, and the store is not waited for."""

    async def test() -> None:
        async with reading(segment(range(5))) as it:
            it.tier.store.gate.clear()
            found = it.reader.read("p", it.tier, 0, max_bytes=100, min_one_batch=True)
            assert found is not None
            assert found.load is not None
            await asyncio.sleep(0)
            await it.reader.close()
            assert found.load.ended
            again = it.reader.read("p", it.tier, 0, max_bytes=100, min_one_batch=True)
            assert again == (None, None)

    run(test)


def test_footers_are_kept_within_their_memory() -> None:
    """There may be thousands of segments; the least recently used are read again."""

    async def test() -> None:
        parts = [segment(range(start, start + 5)) for start in range(0, 50, 5)]
        async with reading(*parts, cache_bytes=GROUP_BYTES, footer_bytes=1) as it:
            for offset in (0, 20, 0):
                it.now_ms += 10_000
                await it.read(offset)
            assert len(it.tier.store.gets) == 6

    run(test)
