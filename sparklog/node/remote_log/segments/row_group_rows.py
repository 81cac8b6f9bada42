"""The rows of one row group, read from its bytes alone and the segment's footer, in slices.

A slice has a fraction of the row group's records, so that memory is bounded by its bytes and little more.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.file_ranges import ByteRange, FileRanges
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.remote_log.segments.segment_format import COLUMNS
from sparklog.protocol.records.numpy_arrays import numbers_of
from sparklog.protocol.types import Offset

_SLICE_BYTES: Final = 1984 * 1024
"""Size of a slice's records in batches, about: a little less than eight batches of a fetch."""
_RECORD_OVERHEAD_BYTES: Final = 10


def row_group_rows(
    data: bytes | memoryview,
    footer: SegmentFooter,
    index: int,
    *,
    start_offset: Offset,
    end_offset: Offset,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of [start_offset, end_offset) in a row group, of whose bytes `data` is all.

    Raises:
        CorruptSegmentError: the bytes are not the row group's, or damaged.
    """
    group = footer.row_groups[index]
    if len(data) != group.end - group.start:
        raise CorruptSegmentError(
            f"{footer.name}: row group {index} has {group.end - group.start} bytes, {len(data)} are there"
        )
    record_bytes = group.raw_bytes // max(group.record_count, 1) + _RECORD_OVERHEAD_BYTES
    slice_rows = max(1, _SLICE_BYTES // record_bytes)
    try:
        file = pq.ParquetFile(
            pa.PythonFile(FileRanges([ByteRange(group.start, group.end)], [data]), mode="r"),
            metadata=footer.metadata,
            page_checksum_verification=True,
        )
        slices = file.iter_batches(slice_rows, [index], columns=list(COLUMNS), use_threads=False)
        for rows in slices:
            offsets = numbers_of(rows.column("offset"))
            start, end = offsets.searchsorted([start_offset, end_offset])
            if start < end:
                yield rows.slice(start, end - start)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSegmentError(f"{footer.name}: row group {index} cannot be read: {error}") from error
