"""Reads of records that only the object store has, for a broker's consumers.

An offset leads to a segment of the manifest, by the segment's footer (read once, then cached) to a row
group, and by one ranged GET to the group's records; of a small segment one GET gives both. Another process
makes batches of them, in a memory file that is cached and sent from as a log file is. A read that finds its
group in memory returns at once; any other returns the `Load` to wait for, after which it is made again. All
that a manifest names is committed, so no high watermark limits these reads, and none of it is of an aborted
transaction.

While a reader reads on sequentially, the groups after its own are loaded too, where there is room.

Belongs to the event loop. Order for the caller: `close` when no more reads come.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from sparklog.executor.remote_reads.decoding.decoder_process import DecoderProcess
from sparklog.executor.remote_reads.decoding.exchange import BatchesRequest
from sparklog.executor.remote_reads.loads import MAX_RUNNING, Load, Loads
from sparklog.executor.remote_reads.machine.row_group_cache import RowGroupCache
from sparklog.executor.remote_reads.machine.sequential_reads import SequentialReads
from sparklog.executor.remote_reads.memory_file import MemoryFiles
from sparklog.executor.remote_reads.row_group import RowGroup
from sparklog.node.metrics.histogram import Histogram
from sparklog.node.rates import QuotaWindows, SimpleRate
from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest, RemoteSegment
from sparklog.node.remote_log.object_store import ObjectStore
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter, SegmentTail, read_tail
from sparklog.node.storage.file_region import FileRegion
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)


class FooterCache:
    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes: Final = capacity_bytes
        self._footers: dict[str, SegmentFooter] = {}
        """The least recently used first."""
        self._size_bytes = 0

    def get(self, segment: str) -> SegmentFooter | None:
        footer = self._footers.pop(segment, None)
        if footer is not None:
            self._footers[segment] = footer
        return footer

    def put(self, footer: SegmentFooter) -> None:
        """Keep a footer that is not here yet."""
        self._footers[footer.name] = footer
        self._size_bytes += footer.memory_bytes
        while self._size_bytes > self._capacity_bytes and len(self._footers) > 1:
            oldest = next(iter(self._footers))
            self._size_bytes -= self._footers.pop(oldest).memory_bytes


Result = TypeVar("Result")

FOOTER_BYTES: Final = 8 * 1024 * 1024
"""Memory for footers, some kilobytes each."""
_BATCH_BYTES: Final = 256 * 1024
"""A fetch of 1 MiB, the clients' default, is filled by whole batches of this size."""
LEAST_GROUP_BYTES: Final = 256 * 1024
"""The least that a group counts: each takes a descriptor, too."""
_MOST_AHEAD: Final = 4
"""Row groups that are loaded ahead of a reader at most: a store's latency may be that of several."""
_READS_A_STEP: Final = 8
"""After so many reads in a row one more row group is loaded ahead."""
_RECORD_OVERHEAD_BYTES: Final = 10
"""Bytes of a record in a batch beside its key, value and headers, at most as a rule."""
_QUOTA_WINDOWS: Final = QuotaWindows(samples=11, window_ms=1_000)
"""Kafka's remote.log.manager.fetch.quota.window.num and .size.seconds."""


class Tier(Protocol):
    """The tier of one partition, as `PartitionTierView`."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def store(self) -> ObjectStore: ...


class RowGroupKey(NamedTuple):
    segment: str
    row_group: int
    start: Offset
    """Records from here to `end` count."""
    end: Offset


class _Place(NamedTuple):
    """A row group, and what is needed to load it."""

    key: RowGroupKey
    store: ObjectStore
    footer: SegmentFooter
    leader_epochs: tuple[EpochStart, ...]


class RemoteRead(NamedTuple):
    """With neither part there is no room for the first batch, or too many look-ups wait."""

    region: FileRegion | None = None
    load: Load | None = None
    """The look-up after which the read can be made again."""


class RemoteReader:
    def __init__(
        self,
        *,
        cache_bytes: int,
        max_wait_ms: int,
        now_ms: Callable[[], int],
        times: Histogram,
        max_bytes_per_second: int | None = None,
        footer_bytes: int = FOOTER_BYTES,
        least_group_bytes: int = LEAST_GROUP_BYTES,
        decoder: DecoderProcess | None = None,
    ) -> None:
        """Keep `cache_bytes` of batches in memory; read `max_bytes_per_second` from the store (None: any).

        `decoder` ends with this reader.
        `times` records how long it takes to load a row group, in seconds. A group counts in the cache with
        `least_group_bytes` at least.
        """
        self.max_wait_ms: Final = max_wait_ms
        """How long a fetch waits for the store."""
        self.max_bytes_per_second = max_bytes_per_second
        self._times = times
        self._least_group_bytes = least_group_bytes
        self._now_ms = now_ms
        self._loads = Loads(now_ms, retried_within_ms=max_wait_ms // 2)
        self._cache: RowGroupCache[RowGroupKey, RowGroup] = RowGroupCache(cache_bytes)
        self._footers = FooterCache(footer_bytes)
        self._sequential = SequentialReads()
        self._rate = SimpleRate(_QUOTA_WINDOWS)
        loop = asyncio.get_running_loop()
        self._files = MemoryFiles(lambda: _call_in(loop, self._loads.go_on), least_bytes=least_group_bytes)
        self.decoder = decoder or DecoderProcess()
        # One thread: what a decoding takes of memory is bounded.
        self._thread = ThreadPoolExecutor(1, "sparklog-remote-log-reader")

    async def close(self) -> None:
        await self._loads.close()
        self._cache.clear()
        self.decoder.end()
        self._thread.shutdown(wait=False)

    @property
    def memory_bytes(self) -> int:
        """The batches in memory: cached, or evicted and still being sent."""
        return self._files.size_bytes

    @property
    def waiting_count(self) -> int:
        """The look-ups that wait for others, for memory or for the quota."""
        return self._loads.waiting_count

    @property
    def idle_share(self) -> float:
        """How much of what may be looked up at a time is not, from 0 to 1."""
        return 1 - self._loads.running_count / MAX_RUNNING

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, partition: Hashable, tier: Tier, offset: Offset, *, max_bytes: int, min_one_batch: bool
    ) -> RemoteRead | None:
        """Return whole batches from the first that ends at `offset` or later; None if there is no such batch.

        At most `max_bytes`, unless `min_one_batch` and the first batch alone is larger.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE below the tier's log start; KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE:
                a look-up has failed lately.
        """
        manifest = tier.manifest
        if offset < manifest.log_start_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{manifest.topic}-{manifest.partition}: offset {offset} is below the tier's start "
                f"{manifest.log_start_offset}",
            )
        place = self._place(tier, offset)
        while isinstance(place, _Place):
            group = self._cache.get(place.key, self._now_ms())
            if group is None:
                return RemoteRead(load=self._loads.get(place.key) or self._load(place))
            if offset < group.end_offset:
                break
            # Of a segment that was cut: the records that count end before its window does.
            place = self._place(tier, place.key.end)
        else:
            return place
        result = group.read(offset, max_bytes=max_bytes, min_one_batch=min_one_batch)
        if result.region is not None:
            if result.next_offset >= group.end_offset:
                self._cache.read_to_end(place.key)
            run = self._sequential.read(partition, offset, result.next_offset)
            if run:
                self._read_ahead(tier, group.end_offset, min(1 + run // _READS_A_STEP, _MOST_AHEAD))
        return RemoteRead(region=result.region)

    def _place(self, tier: Tier, offset: Offset) -> "_Place | RemoteRead | None":
        """Return the row group that is read next, or the look-up of its footer."""
        manifest = tier.manifest
        segments = manifest.segments
        first = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
        for segment in segments[first:]:
            if segment.end_offset <= offset or not segment.record_count:
                continue
            footer = self._footers.get(segment.name)
            if footer is None:
                key = segment.name
                return RemoteRead(load=self._loads.get(key) or self._load_footer(tier, segment, offset))
            sought = max(offset, segment.base_offset)
            number = footer.group_with(sought)
            if number is not None:
                place = _place_of(tier, segment, footer, number)
                if sought < place.key.end:
                    return place
        return None

    def _read_ahead(self, tier: Tier, offset: Offset, group_count: int) -> None:
        """Load up to `group_count` row groups from `offset` on, as far as there is room."""
        try:
            for _ in range(group_count):
                place = self._place(tier, offset)
                if not isinstance(place, _Place) or self._loads.waiting_count:
                    return
                is_here = place.key in self._cache or self._loads.get(place.key) is not None
                if not is_here and self._load(place, is_read_ahead=True) is None:
                    return
                offset = place.key.end
        except KafkaError:
            logger.debug("no read-ahead at offset %d: its look-up has failed lately", offset)

    # --- searching ------------------------------------------------------------------------------

    async def footer(self, tier: Tier, segment: RemoteSegment) -> SegmentFooter:
        """Return a segment's footer.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        while (footer := self._footers.get(segment.name)) is None:
            await self._loads.until_ended(self._loads.get(segment.name) or self._load_footer(tier, segment))
        return footer

    async def row_group(self, tier: Tier, segment: RemoteSegment, number: int) -> RowGroup | None:
        """Return a row group of a segment; None if none of its records counts.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        place = _place_of(tier, segment, await self.footer(tier, segment), number)
        if place.key.start >= place.key.end:
            return None
        while (group := self._cache.get(place.key, self._now_ms())) is None:
            await self._loads.until_ended(self._loads.get(place.key) or self._load(place))
        return group

    async def beside(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run a function in the thread that waits for the decoder process."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # --- loading --------------------------------------------------------------------------------

    def _load(self, place: _Place, *, is_read_ahead: bool = False) -> Load | None:
        key = place.key
        may_load: Callable[[], bool] = partial(self._may_load, place, is_read_ahead=is_read_ahead)
        if is_read_ahead:
            if not may_load():
                return None
            may_load = _yes
        load = self._loads.begin(key, partial(self._look_up, place), may_load)
        if load is None:
            self._cache.abandon(key)
        elif not load.ended:
            load.wait(partial(self._cache.abandon, key))
        return load

    def _load_footer(self, tier: Tier, segment: RemoteSegment, offset: Offset | None = None) -> Load | None:
        """Look a footer up, and with it the row group that is read from `offset` on, if it comes along."""
        return self._loads.begin(segment.name, partial(self._look_up_footer, tier, segment, offset))

    def _may_load(self, place: _Place, *, is_read_ahead: bool) -> bool:
        """Return whether quota and memory allow a load, and take its part of them."""
        now_ms = self._now_ms()
        bound = self.max_bytes_per_second
        if bound is not None and self._rate.rate(now_ms) > bound:
            return False
        summary = place.footer.row_groups[place.key.row_group]
        sending_bytes = self.memory_bytes - self._cache.cached_bytes
        if not self._cache.reserve(
            place.key,
            max(summary.raw_bytes + summary.record_count * _RECORD_OVERHEAD_BYTES, self._least_group_bytes),
            now_ms,
            sending_bytes=sending_bytes,
            is_read_ahead=is_read_ahead,
        ):
            return False
        self._rate.record(summary.end - summary.start, now_ms)
        return True

    async def _look_up(self, place: _Place) -> None:
        began_s = perf_counter()
        summary = place.footer.row_groups[place.key.row_group]
        data = await place.store.get_range(place.key.segment, summary.start, summary.end)
        await self._decode(place, data)
        self._times.record(perf_counter() - began_s)

    async def _look_up_footer(self, tier: Tier, segment: RemoteSegment, offset: Offset | None) -> None:
        name = segment.name
        tail = await read_tail(tier.store, name, segment.size_bytes)
        footer = self._footers.get(name)
        if footer is None:
            footer = await self.beside(self.decoder.footer, tail.data, name)
        if offset is not None:
            await self._decode_tail(tier, segment, footer, tail, offset)
        if self._footers.get(name) is None:
            self._footers.put(footer)

    async def _decode_tail(
        self, tier: Tier, segment: RemoteSegment, footer: SegmentFooter, tail: SegmentTail, offset: Offset
    ) -> None:
        """Put the row group that is read from `offset` on into the cache, if `tail` has all of it."""
        number = footer.group_with(max(offset, segment.base_offset))
        data = None if number is None else tail.row_group(footer.row_groups[number])
        if number is None or data is None:
            return
        place = _place_of(tier, segment, footer, number)
        is_wanted = place.key.start < place.key.end and place.key not in self._cache
        if is_wanted and self._may_load(place, is_read_ahead=True):
            try:
                await self._decode(place, data)
            finally:
                self._cache.abandon(place.key)

    async def _decode(self, place: _Place, data: bytes) -> None:
        """Make batches of a row group's bytes, and put them into the cache."""
        key = place.key
        request = BatchesRequest(
            key.segment, key.row_group, key.start, key.end, place.leader_epochs, _BATCH_BYTES
        )
        group: RowGroup = await self.beside(self.decoder.row_group, request, place.footer, data)
        self._files.add(group.file)
        self._cache.put(key, group, self._files.size_of(group.file), self._now_ms())


def _place_of(tier: Tier, segment: RemoteSegment, footer: SegmentFooter, number: int) -> _Place:
    summary = footer.row_groups[number]
    start = max(summary.first_offset, segment.base_offset)
    end = min(summary.last_offset + 1, segment.end_offset)
    key = RowGroupKey(segment.name, number, start, end)
    return _Place(key, tier.store, footer, tier.manifest.leader_epochs)


def _base_offset(segment: RemoteSegment) -> Offset:
    return segment.base_offset


def _yes() -> bool:
    return True


def _call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
