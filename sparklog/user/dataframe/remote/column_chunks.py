"""The column chunks of row groups: which bytes of a remote segment hold some columns, and their rows.

A query that needs one column reads its bytes alone. Chunks that lie close together are read by one request.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.file_ranges import ByteRange, FileRanges, range_of
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter

_GAP_BYTES: Final = 256 * 1024
"""Bytes between two chunks that are read in vain rather than send another request."""
_UNIT_BYTES: Final = 4 * 1024 * 1024
"""Of the columns of consecutive row groups that are read together, uncompressed."""
_UNIT_ROWS: Final = 256 * 1024


class ColumnChunks(NamedTuple):
    """The chunks of some columns in consecutive row groups."""

    row_groups: tuple[int, ...]
    ranges: tuple[ByteRange, ...]
    """In the order of the object; they do not overlap."""

    @property
    def size_bytes(self) -> int:
        """The bytes that are read."""
        return sum(each.end - each.start for each in self.ranges)


def chunks_of(
    footer: SegmentFooter, row_groups: Sequence[int], columns: frozenset[str]
) -> Iterator[ColumnChunks]:
    """Yield the chunks of `columns`, several row groups at a time where these are small."""
    numbers: list[int] = []
    ranges: list[ByteRange] = []
    raw_bytes = rows = 0
    for number in row_groups:
        group = footer.metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.path_in_schema.split(".", 1)[0] in columns:
                ranges.append(range_of(chunk))
                raw_bytes += chunk.total_uncompressed_size
        numbers.append(number)
        rows += group.num_rows
        if raw_bytes >= _UNIT_BYTES or rows >= _UNIT_ROWS:
            yield ColumnChunks(tuple(numbers), _merged(ranges))
            numbers, ranges, raw_bytes, rows = [], [], 0, 0
    if numbers:
        yield ColumnChunks(tuple(numbers), _merged(ranges))


def _merged(ranges: list[ByteRange]) -> tuple[ByteRange, ...]:
    merged: list[ByteRange] = []
    for each in sorted(ranges):
        if merged and each.start - merged[-1].end <= _GAP_BYTES:
            merged[-1] = ByteRange(merged[-1].start, max(each.end, merged[-1].end))
        else:
            merged.append(each)
    return tuple(merged)


def read_rows(
    footer: SegmentFooter,
    chunks: ColumnChunks,
    data: Sequence[bytes],
    columns: Sequence[str],
    *,
    check_crcs: bool,
) -> pa.Table:
    """Return the rows of the row groups; `data` has the bytes of each range.

    Raises:
        CorruptSegmentError: the bytes are damaged.
    """
    try:
        file = pq.ParquetFile(
            pa.PythonFile(FileRanges(chunks.ranges, data), mode="r"),
            metadata=footer.metadata,
            page_checksum_verification=check_crcs,
        )
        return file.read_row_groups(list(chunks.row_groups), columns=list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSegmentError(
            f"{footer.name}: row groups {chunks.row_groups[0]} to {chunks.row_groups[-1]} cannot be read: "
            f"{error}"
        ) from error
