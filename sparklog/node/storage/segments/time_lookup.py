"""Look-up of records by timestamp, for ListOffsets (KIP-32, KIP-79, KIP-734).

The time index leads to the neighbourhood, headers to the batch, and one batch is opened to find the record.
May block on a cold disk.
"""

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from sparklog.node.storage.segments.batch_walk import header_at, walk_headers
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.records.batch import BatchHeader, check_crc
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs

logger = logging.getLogger(__name__)


class OffsetAndTimestamp(NamedTuple):
    offset: Offset
    timestamp_ms: TimestampMs | None
    """None for the special timestamps (LATEST, EARLIEST)."""
    leader_epoch: LeaderEpoch | None


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: TimestampMs, log_start_offset: Offset
) -> OffsetAndTimestamp | None:
    """Return the first record from `log_start_offset` on that is not earlier than `timestamp_ms`.

    Raises:
        CorruptBatchError: a batch on the way is damaged.
        OSError: the log cannot be read.
    """
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        start_offset = max(_earliest_candidate(segment, timestamp_ms), log_start_offset)
        start = segment.scan_start(start_offset)
        for position, header in walk_headers(segment.file, start, segment.size_bytes):
            if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
                continue
            for offset, record_timestamp_ms in _timestamps(segment, position, header, log_start_offset):
                if record_timestamp_ms >= timestamp_ms and offset >= log_start_offset:
                    return OffsetAndTimestamp(offset, record_timestamp_ms, _epoch(header))
    return None


def latest(segments: Sequence[Segment]) -> OffsetAndTimestamp | None:
    """Return the first record with the largest timestamp; None if no record has one.

    Raises:
        CorruptBatchError: a batch on the way is damaged.
        OSError: the log cannot be read.
    """
    segment = max(segments, key=lambda candidate: candidate.max_timestamp_ms)
    largest = segment.max_timestamp_ms
    if largest < 0:
        return None
    start = segment.scan_start(segment.offset_of_max_timestamp)
    for position, header in walk_headers(segment.file, start, segment.size_bytes):
        if header.max_timestamp == largest:
            for offset, timestamp_ms in _timestamps(segment, position, header, header.base_offset):
                if timestamp_ms >= largest:
                    return OffsetAndTimestamp(offset, timestamp_ms, _epoch(header))
    return None


def _earliest_candidate(segment: Segment, timestamp_ms: TimestampMs) -> Offset:
    """Return an offset below which all records of the segment are earlier than `timestamp_ms`."""
    removals = segment.time_index.removals
    entry = segment.time_index.lookup(timestamp_ms)
    if entry is None:
        return segment.base_offset
    position = segment.position_of(entry.offset)
    if position < segment.size_bytes:
        header = header_at(segment.file, position, segment.size_bytes)
        if (header.max_timestamp, header.last_offset) == (entry.timestamp_ms, entry.offset):
            return entry.offset
    if segment.time_index.removals == removals:
        logger.error(
            "%s has an entry %r that does not match the log: searching without it",
            segment.time_index.path,
            entry,
        )
    return segment.base_offset


def _timestamps(
    segment: Segment, position: int, header: BatchHeader, from_offset: Offset
) -> Sequence[tuple[Offset, TimestampMs]]:
    """Return the records' offsets and timestamps; of records with equal timestamps, the first may suffice."""
    if not header.record_count:
        # A cleaning keeps some batches for their headers alone.
        return []
    if header.timestamp_type and header.base_offset >= from_offset:
        return [(header.base_offset, header.max_timestamp)]
    batch = os.pread(segment.file.fileno(), header.size_bytes, position)
    check_crc(batch, 0, header)
    return [
        (header.base_offset if record.offset is None else record.offset, record.timestamp_ms)
        for record in read_records(batch, header, 0)
        if record.timestamp_ms is not None
    ]


def _epoch(header: BatchHeader) -> LeaderEpoch | None:
    return header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
