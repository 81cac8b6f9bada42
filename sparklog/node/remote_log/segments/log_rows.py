"""The records of a range of a log that readers of committed records see, as rows of a remote segment.

Aborted records, transaction markers and empty batches of the cleaner yield no rows; offsets keep their gaps.
All decompression happens here, so this belongs into a thread of its own.
"""

from collections.abc import Iterator
from itertools import starmap
from typing import Final, NamedTuple

import pyarrow as pa

from sparklog.node.remote_log.segments.segment_format import COLUMNS
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.aborted_batches import AbortedBatches
from sparklog.protocol.records.batch import next_fetch_offset
from sparklog.protocol.records.decode import DEFAULT_ROWS, decode_batches
from sparklog.protocol.types import Offset

_READ_BYTES: Final = 4 * 1024 * 1024
_ALL_ROWS: Final = 2**31 - 1


class LogRows(NamedTuple):
    batches: memoryview
    rows: pa.RecordBatch


def log_rows(log: Log, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
    """Yield the committed records of [start, end), a few MiB at a time.

    `end` is at most the last stable offset. Timestamps that no column can hold are at the ends of its range.

    Raises:
        KafkaError: as `Log.read` raises it; CORRUPT_MESSAGE: a batch is damaged; KAFKA_STORAGE_ERROR: bytes
            were truncated while they were read, or the log ends below `end`.
    """
    for _, rows in _decoded(log, start, end, DEFAULT_ROWS):
        yield rows


def log_rows_with_batches(log: Log, start: Offset, end: Offset) -> Iterator[LogRows]:
    """Yield the same, each time with the batches in which the records lie, none of them divided."""
    yield from starmap(LogRows, _decoded(log, start, end, _ALL_ROWS))


def _decoded(
    log: Log, start: Offset, end: Offset, max_rows: int
) -> Iterator[tuple[memoryview, pa.RecordBatch]]:
    topic, partition = log.topic_partition
    aborted = AbortedBatches(log.aborted_transactions(start, end))
    position = start
    while position < end:
        read = log.read(position, max_bytes=_READ_BYTES, up_to_offset=end)
        if read.region is None:  # `end` may be inside the next batch
            read = log.read(position, max_bytes=1, up_to_offset=log.log_end_offset)
        if read.region is None:
            # Nothing may follow where compaction has left nothing (`Log.skip_to`), but not where a log ends.
            if log.log_end_offset < end:
                raise _truncated(log, position)
            return
        data = read.region.read()
        if len(data) < len(read.region):
            raise _truncated(log, position)
        for part in aborted.visible(data):
            # Rows keep the bytes of their batches, and of a small part would keep all that was read.
            visible = memoryview(bytes(part)) if 2 * len(part) < len(data) else part
            for rows in decode_batches(
                visible,
                columns=COLUMNS,
                topic=topic,
                partition=partition,
                start_offset=start,
                end_offset=end,
                saturate_timestamps=True,
                view_values=True,
                max_rows=max_rows,
            ):
                yield visible, rows
        position = next_fetch_offset(data, position)


def _truncated(log: Log, position: Offset) -> KafkaError:
    return KafkaError(
        ErrorCode.kafka_storage_error,
        f"{log.topic_partition}: the log was truncated while offsets from {position} on were read",
    )
