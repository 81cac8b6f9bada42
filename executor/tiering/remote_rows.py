"""The records of remote segments, one row group at a time: read with one request, decoded in a thread."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

import pyarrow as pa

from sparklog.executor.tiering.copy_threads import CopyThreads
from sparklog.node.remote_log.machine.manifest import EpochStart, RemoteSegment
from sparklog.node.remote_log.object_store import ObjectStore
from sparklog.node.remote_log.segments.row_group_batches import EncodedRowGroup, row_group_batches
from sparklog.node.remote_log.segments.row_group_rows import row_group_rows
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter, read_footer


async def rows_of(
    store: ObjectStore, threads: CopyThreads, segments: Sequence[RemoteSegment]
) -> AsyncIterator[pa.Table]:
    """Yield the records in the windows of segments, in order.

    Raises:
        StoreError: one cannot be read, or is damaged.
    """
    async for segment, footer, index, data in _row_groups(store, segments):
        yield await threads.run(
            partial(
                row_group_rows,
                data,
                footer,
                index,
                start_offset=segment.base_offset,
                end_offset=segment.end_offset,
            )
        )


async def batches_of(
    store: ObjectStore,
    threads: CopyThreads,
    segments: Sequence[RemoteSegment],
    leader_epochs: Sequence[EpochStart],
) -> AsyncIterator[EncodedRowGroup]:
    """Yield the same records as batches.

    Raises:
        StoreError: a segment cannot be read, or is damaged.
    """
    async for segment, footer, index, data in _row_groups(store, segments):
        yield await threads.run(
            partial(
                row_group_batches,
                data,
                footer,
                index,
                start_offset=segment.base_offset,
                end_offset=segment.end_offset,
                leader_epochs=leader_epochs,
            )
        )


async def _row_groups(
    store: ObjectStore, segments: Sequence[RemoteSegment]
) -> AsyncIterator[tuple[RemoteSegment, SegmentFooter, int, bytes]]:
    for segment in segments:
        footer = await read_footer(store, segment.name, segment.size_bytes)
        for index, group in enumerate(footer.row_groups):
            if group.last_offset >= segment.base_offset and group.first_offset < segment.end_offset:
                yield segment, footer, index, await store.get_range(segment.name, group.start, group.end)
