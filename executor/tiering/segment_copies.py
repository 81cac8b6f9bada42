"""Remote segments made of the local log, or of other remote segments: written to a file, then to the store.

The file lies beside the logs, since a segment may be larger than memory and than a temporary directory. Only
so many are made at a time; threads read and write it, at a low priority (`copy_threads`), and the bytes that
go to the store keep a rate (remote.log.manager.copy.max.bytes.per.second). A small one leaves its place to
the next before it goes to the store: many partitions with little each wait for answers, and not for a
processor. A file that a crash has left is removed at the next start.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import pyarrow as pa

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.tiering.byte_turns import ByteTurns
from sparklog.executor.tiering.copy_threads import CopyThreads
from sparklog.executor.tiering.machine.events import (
    CopySegment,
    MergeSegments,
    RewriteSegments,
    SegmentWritten,
    WriteSegment,
)
from sparklog.executor.tiering.machine.piece_cut import PieceCut
from sparklog.executor.tiering.tier_counts import TierCounts
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.node.remote_log.object_store import ObjectStore
from sparklog.node.remote_log.segments.log_rows import log_rows, log_rows_with_batches
from sparklog.node.remote_log.segments.merge import merge_segments
from sparklog.node.remote_log.segments.rows_of_periods import period_runs
from sparklog.node.remote_log.segments.segment_writer import WrittenSegment, write_segment
from sparklog.node.remote_log.segments.typed_columns import typed_columns
from sparklog.node.storage.machine.producer_states import without_open_transactions
from sparklog.node.storage.producers.producer_snapshots import encode_snapshot
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)

FILE_SUFFIX: Final = ".remote-copy"
COPIES_AT_A_TIME: Final = 2
UNDER_WAY_AT_A_TIME: Final = 16
"""With those that only wait for the store."""
SMALL_BYTES: Final = 1024 * 1024
"""The size up to which a file goes to the store beside others."""

_Item = TypeVar("_Item")


class CopyStoppedError(Exception):
    """The copy was ended on request."""


class SegmentCopies:
    def __init__(self, store: ObjectStore, threads: CopyThreads, byte_turns: ByteTurns) -> None:
        self._store = store
        self._threads = threads
        self._byte_turns = byte_turns
        self._places = asyncio.Semaphore(UNDER_WAY_AT_A_TIME)
        self._turns = asyncio.Semaphore(COPIES_AT_A_TIME)
        self.under_way = 0

    async def write(
        self, replica: Replica, effect: WriteSegment, stopped: threading.Event, counts: TierCounts
    ) -> SegmentWritten:
        """Carry out an effect that writes a segment; `stopped` ends it early, but no upload.

        `counts` are those of the topic.

        Raises:
            CopyStoppedError: by `stopped`.
            StoreError: of the store.
            KafkaError, OSError: of the local log, or of the file.
        """
        file = Path(replica.log.parent) / f"{uuid4().hex}{FILE_SUFFIX}"
        async with self._places:
            try:
                async with self._turn():
                    effect, written = await self._made(replica, effect, file, stopped)
                    if written.size_bytes > SMALL_BYTES:
                        await self._put(effect, written, file, stopped)
                if written.size_bytes <= SMALL_BYTES:
                    await self._put(effect, written, file, stopped)
            finally:
                await asyncio.to_thread(file.unlink, missing_ok=True)
            producers = None
            if isinstance(effect, CopySegment):
                counts.unparsed_values += written.unparsed_count
                producers = await self._write_producers(replica, effect)
        return SegmentWritten(effect, _segment(effect, written), producers)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with self._turns:
            self.under_way += 1
            try:
                yield
            finally:
                self.under_way -= 1

    async def _made(
        self, replica: Replica, effect: WriteSegment, file: Path, stopped: threading.Event
    ) -> tuple[WriteSegment, WrittenSegment]:
        """Write the file; return the effect with the end of the piece that is in it, and its figures."""
        match effect:
            case CopySegment():
                return await self._threads.run(partial(_copied_piece, replica, effect, file, stopped))
            case RewriteSegments():
                rows = log_rows(replica.log, effect.base_offset, effect.end_offset)
                return effect, await self._threads.run(partial(_copied, replica, rows, file, stopped))
            case MergeSegments():
                return effect, await self._merged(replica, effect, file, stopped)

    async def _put(
        self, effect: WriteSegment, written: WrittenSegment, file: Path, stopped: threading.Event
    ) -> None:
        if written.record_count:
            await self._byte_turns.wait(written.size_bytes)
            _check(stopped)
            await self._store.create(effect.segment_name, file)

    async def _merged(
        self, replica: Replica, effect: MergeSegments, file: Path, stopped: threading.Event
    ) -> WrittenSegment:
        topic, partition = replica.topic_partition
        return await merge_segments(
            self._store,
            effect.segments,
            file,
            topic=topic,
            topic_id=replica.topic_id,
            partition=partition,
            typed=typed_columns(replica.settings.log.table_value_schema),
            executor=self._threads.executor,
            check=partial(_check, stopped),
        )

    async def _write_producers(self, replica: Replica, effect: CopySegment) -> str | None:
        now_ms = wall_clock_ms()
        producers = await self._threads.run(lambda: replica.log.producers_at(effect.end_offset, now_ms))
        if not producers.producers:
            return None
        # Copies end at or below the last stable offset: a marker that lies above may never come here.
        decided = without_open_transactions(producers.producers)
        content = await self._threads.run(lambda: encode_snapshot(decided))
        await self._store.create(effect.producers_name, content)
        return effect.producers_name


def _copied_piece(
    replica: Replica, effect: CopySegment, file: Path, stopped: threading.Event
) -> tuple[CopySegment, WrittenSegment]:
    """Write a piece of the local log to a file; return the effect with the piece's end."""
    if effect.period_ms is None:
        rows = log_rows(replica.log, effect.base_offset, effect.end_offset)
        return effect, _copied(replica, rows, file, stopped)
    cut = PieceCut()
    written = _copied(replica, _rows_of_piece(replica, effect, effect.period_ms, cut), file, stopped)
    return replace(effect, end_offset=cut.finish(effect.end_offset)), written


def _rows_of_piece(
    replica: Replica, effect: CopySegment, period_ms: int, cut: PieceCut
) -> Iterator[pa.RecordBatch]:
    """Yield the records up to where `cut` ends the piece."""
    in_doubt: list[pa.RecordBatch] = []
    for found in log_rows_with_batches(replica.log, effect.base_offset, effect.end_offset):
        for run in period_runs(found, period_ms):
            cut.add(*run)
        in_doubt.append(found.rows)
        if cut.end_offset is not None:
            break
        settled, in_doubt = _divided(in_doubt, cut.settled_to)
        yield from settled
    settled, _ = _divided(in_doubt, cut.finish(effect.end_offset))
    yield from settled


def _divided(
    batches: list[pa.RecordBatch], offset: Offset | None
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Divide records at an offset; all are below `None`."""
    below: list[pa.RecordBatch] = []
    for place, rows in enumerate(batches):
        count = len(rows) if offset is None else int(rows.column("offset").to_numpy().searchsorted(offset))
        below.append(rows.slice(0, count))
        if count < len(rows):
            return below, [rows.slice(count), *batches[place + 1 :]]
    return below, []


def _copied(
    replica: Replica, rows: Iterable[pa.RecordBatch], file: Path, stopped: threading.Event
) -> WrittenSegment:
    topic, partition = replica.topic_partition
    return write_segment(
        _until(stopped, rows),
        file,
        topic=topic,
        topic_id=replica.topic_id,
        partition=partition,
        typed=typed_columns(replica.settings.log.table_value_schema),
    )


def _segment(effect: WriteSegment, written: WrittenSegment) -> RemoteSegment | None:
    """Return the segment that an effect has written; `None` without records."""
    if written.record_count == 0:
        return None
    if isinstance(effect, MergeSegments):
        base_offset, end_offset = effect.segments[0].base_offset, effect.segments[-1].end_offset
    else:
        base_offset, end_offset = effect.base_offset, effect.end_offset
    return RemoteSegment(
        name=effect.segment_name,
        base_offset=base_offset,
        end_offset=end_offset,
        record_count=written.record_count,
        size_bytes=written.size_bytes,
        raw_bytes=written.raw_bytes,
        first_timestamp_ms=written.first_timestamp_ms,
        max_timestamp_ms=written.max_timestamp_ms,
        crc32c=written.crc32c,
    )


def _until(stopped: threading.Event, items: Iterable[_Item]) -> Iterator[_Item]:
    for item in items:
        _check(stopped)
        yield item


def _check(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise CopyStoppedError


def remove_left_files(directories: Iterable[Path]) -> None:
    """Remove the files of copies that a crash has ended. Blocks."""
    for directory in directories:
        for file in directory.glob(f"*{FILE_SUFFIX}"):
            file.unlink(missing_ok=True)
