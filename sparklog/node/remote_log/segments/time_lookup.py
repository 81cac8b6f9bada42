"""The first record of a row group at or after a time, for ListOffsets."""

from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.node.remote_log.segments.row_group_rows import row_group_rows
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.protocol.types import Offset, TimestampMs

_US_PER_MS: Final = 1000


def first_at_or_after(
    data: bytes | memoryview,
    footer: SegmentFooter,
    index: int,
    timestamp_ms: TimestampMs,
    *,
    start_offset: Offset,
    end_offset: Offset,
) -> tuple[Offset, TimestampMs] | None:
    """Return offset and time of the first record of [start_offset, end_offset) in a row group.

    None: all of them are earlier. `data` is all of the row group's bytes.

    Raises:
        CorruptSegmentError: the bytes are not the row group's, or damaged.
    """
    rows = row_group_rows(
        data,
        footer,
        index,
        start_offset=start_offset,
        end_offset=end_offset,
        columns=("offset", "timestamp"),
    )
    timestamps = rows.column("timestamp").cast(pa.int64()).to_numpy()
    found = np.flatnonzero(timestamps >= timestamp_ms * _US_PER_MS)
    if not len(found):
        return None
    row = int(found[0])
    return rows.column("offset")[row].as_py(), int(timestamps[row]) // _US_PER_MS
