"""Rows for tests of remote segments, as a log has them, and their way into a file and back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa

from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.segments.row_group_batches import EncodedBatches, row_group_batches
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.remote_log.segments.segment_format import SCHEMA
from sparklog.node.remote_log.segments.segment_writer import WrittenSegment, write_segment
from sparklog.protocol.records.batch import TimestampType, check_crc, iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, read_records

TOPIC: Final = "flights"
TOPIC_ID: Final = UUID(int=77)
PARTITION: Final = 3
END: Final = 2**63 - 1


class Record(NamedTuple):
    offset: int
    timestamp_ms: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


def rows_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Return records as the rows of a segment."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "partition": PARTITION,
                "offset": each.offset,
                "timestamp": each.timestamp_ms * 1000,
                "timestampType": int(each.timestamp_type),
                "key": each.key,
                "value": each.value,
                "headers": [{"key": key, "value": value} for key, value in each.headers] or None,
            }
            for each in records
        ],
        SCHEMA,
    )


def write(path: Path, *pieces: Sequence[Record]) -> WrittenSegment:
    """Write records as a segment, each piece as one RecordBatch."""
    rows = (rows_of(piece) for piece in pieces)
    return write_segment(rows, path, topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION)


def footer_of(path: Path) -> SegmentFooter:
    return SegmentFooter.parse(path.read_bytes(), path.name)


def group_bytes(path: Path, footer: SegmentFooter, index: int) -> bytes:
    """Return what a ranged read of a row group gives."""
    group = footer.row_groups[index]
    return path.read_bytes()[group.start : group.end]


def batches_of(
    path: Path,
    index: int = 0,
    *,
    start_offset: int = 0,
    end_offset: int = END,
    leader_epochs: Sequence[EpochStart] = (EpochStart(0, 0),),
    max_batch_bytes: int = 1024 * 1024,
) -> EncodedBatches:
    """Return all batches of a row group of a segment."""
    footer = footer_of(path)
    steps = list(
        row_group_batches(
            group_bytes(path, footer, index),
            footer,
            index,
            start_offset=start_offset,
            end_offset=end_offset,
            leader_epochs=leader_epochs,
            max_batch_bytes=max_batch_bytes,
        )
    )
    return EncodedBatches(
        tuple(part for step in steps for part in step.parts),
        sum(step.size_bytes for step in steps),
        tuple(position for step in steps for position in step.positions),
    )


def records_of(batches: bytes) -> list[tuple[int, Record]]:
    """Return (leader epoch, record) of batches, as a consumer reads them; their CRCs are checked."""
    found = []
    for position, header in iterate_headers(batches):
        check_crc(batches, position, header)
        for record in read_records(batches, header, position):
            found.append((header.partition_leader_epoch, _with_type(record, header.timestamp_type)))
    return found


def _with_type(record: SimpleRecord, timestamp_type: TimestampType) -> Record:
    assert record.offset is not None
    # `read_records` reads -1 as no timestamp.
    timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
    return Record(record.offset, timestamp_ms, record.key, record.value, record.headers, timestamp_type)
