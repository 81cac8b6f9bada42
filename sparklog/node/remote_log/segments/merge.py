"""Several remote segments, neighbours of one partition, written as one.

A piece that was copied because it was due, not because it was full, is small: many of them cost requests and
footers. Their records are read row group by row group, so that memory is bounded by one. Of a segment only
the records in [base_offset, end_offset) of its manifest count.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.node.remote_log.object_store import ObjectStore
from sparklog.node.remote_log.segments.row_group_rows import row_group_rows
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter, open_segment
from sparklog.node.remote_log.segments.segment_writer import SegmentWriter, WrittenSegment
from sparklog.node.remote_log.segments.typed_columns import TypedColumns


async def merge_segments(
    store: ObjectStore,
    segments: Sequence[RemoteSegment],
    path: Path,
    *,
    topic: str,
    topic_id: UUID,
    partition: int,
    typed: TypedColumns | None = None,
    executor: Executor | None = None,
    check: Callable[[], None] = lambda: None,
) -> WrittenSegment:
    """Write the records of consecutive segments to a new file; `executor` has the threads for it.

    A failure removes the file. So does an exception of `check`, which is called before each row group.

    Raises:
        CorruptSegmentError: an object is not the segment that the manifest names.
        ObjectMissingError: another leader has merged them, or deleted them by retention.
        StoreRefusedError, StoreUnavailableError: as the store raises them.
        FileExistsError: `path` exists.
    """
    loop = asyncio.get_running_loop()
    with SegmentWriter.open(path, topic=topic, topic_id=topic_id, partition=partition, typed=typed) as writer:

        def add(data: bytes, footer: SegmentFooter, index: int, segment: RemoteSegment) -> None:
            rows = row_group_rows(
                data, footer, index, start_offset=segment.base_offset, end_offset=segment.end_offset
            )
            for batch in rows:
                writer.write(batch)

        for segment in segments:
            opened = await open_segment(store, segment.name, segment.size_bytes)
            for index in opened.footer.groups_within(segment.base_offset, segment.end_offset):
                check()
                data = await opened.row_group(index)
                await loop.run_in_executor(executor, add, data, opened.footer, index, segment)
        return await loop.run_in_executor(executor, writer.finish)
