"""Look-ups of records of the object store by their timestamps, for ListOffsets."""

from typing import TYPE_CHECKING

from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.node.storage.segments.time_lookup import OffsetAndTimestamp
from sparklog.protocol.types import Offset, TimestampMs

if TYPE_CHECKING:
    from sparklog.executor.remote_reads.remote_reader import RemoteReader, Tier


async def first_at_or_after(
    reader: "RemoteReader", tier: "Tier", timestamp_ms: TimestampMs, start: Offset, end: Offset
) -> OffsetAndTimestamp | None:
    """Return the first record from `start` on that is not earlier than `timestamp_ms`.

    Row groups that begin at `end` or later are left out.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE: the store did not give what was needed.
    """
    for segment in _segments(tier, start, end):
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        footer = await reader.footer(tier, segment)
        for number, summary in enumerate(footer.row_groups):
            if summary.max_timestamp_ms >= timestamp_ms and summary.overlaps(start, end):
                group = await reader.row_group(tier, segment, number)
                if group is not None:
                    found = await reader.beside(group.first_at_or_after, timestamp_ms, start)
                    if found is not None:
                        return found
    return None


async def latest(
    reader: "RemoteReader", tier: "Tier", start: Offset, end: Offset
) -> OffsetAndTimestamp | None:
    """Return the first of the records from `start` on with the largest timestamp, as `first_at_or_after`.

    Statistics bound a timestamp from above only, since some of a group's records may not count any more: the
    groups with the largest are read until no other can have a larger one.
    """
    best: OffsetAndTimestamp | None = None
    largest: TimestampMs = -1
    by_time = sorted(_segments(tier, start, end), key=_largest_first)
    for segment in by_time:
        if segment.max_timestamp_ms <= largest:
            break
        footer = await reader.footer(tier, segment)
        numbered = sorted(enumerate(footer.row_groups), key=lambda numbered: -numbered[1].max_timestamp_ms)
        for number, summary in numbered:
            if summary.max_timestamp_ms <= largest:
                break
            if not summary.overlaps(start, end):
                continue
            group = await reader.row_group(tier, segment, number)
            found = None if group is None else await reader.beside(group.latest, start)
            if found is not None and found.timestamp_ms is not None and found.timestamp_ms > largest:
                best, largest = found, found.timestamp_ms
    return best


def _segments(tier: "Tier", start: Offset, end: Offset) -> list[RemoteSegment]:
    return [
        segment
        for segment in tier.manifest.segments
        if segment.record_count and segment.end_offset > start and segment.base_offset < end
    ]


def _largest_first(segment: RemoteSegment) -> int:
    return -segment.max_timestamp_ms
