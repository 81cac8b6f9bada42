"""The next work of a leader in its partition's tier: copies, merges, rewrites, and the next log start.

Pure functions of the manifest and the facts of the log.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from sparklog.executor.tiering.machine.events import LogFacts, TierConfig
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.periods import period_of
from sparklog.protocol.types import Offset, TimestampMs

MERGED_SEGMENTS: Final = 8
"""So many neighbours, each smaller than such a part of segment.bytes, become one."""
MOST_MERGED_SEGMENTS: Final = 64
SMALLEST_LEVEL_BYTES: Final = 64 * 1024
"""Segments smaller than that are alike, when neighbours of a size are looked for."""
WASTED_FACTOR: Final = 2
"""A compacted range is written again when the tier has so many times the bytes of the local log."""


def next_copy_end(start_offset: Offset, log: LogFacts, segment_bytes: int, *, partial: bool) -> Offset | None:
    """Return up to where to copy from `start_offset` on; None for nothing.

    Whole rolled segments, as many as segment.bytes allow, at least one; with `partial` also what may be
    copied of the one behind.
    """
    end_offset = start_offset
    size_bytes = 0
    for place, segment in enumerate(log.segments):
        if segment.end_offset <= start_offset:
            continue
        size_bytes += segment.size_bytes
        if end_offset > start_offset and size_bytes > segment_bytes:
            break
        is_active = place == len(log.segments) - 1
        if is_active or segment.end_offset > log.copyable_end_offset:
            if partial:
                end_offset = max(end_offset, min(log.copyable_end_offset, segment.end_offset))
            break
        end_offset = segment.end_offset
    return end_offset if end_offset > start_offset else None


def retained_start(manifest: Manifest, log: LogFacts, config: TierConfig, wall_ms: TimestampMs) -> Offset:
    """Return the log start that retention.ms and retention.bytes allow, as in Kafka's RemoteLogManager.

    The oldest remote segments go, without a gap, while they are too old or while the rest, remote and not
    yet copied, is at least retention.bytes.
    """
    start_offset = manifest.log_start_offset
    if not config.deletes:
        return start_offset
    excess_bytes = 0
    if config.retention_bytes is not None:
        uncopied_bytes = sum(
            segment.size_bytes for segment in log.segments if segment.base_offset >= manifest.end_offset
        )
        remote_bytes = sum(segment.raw_bytes for segment in manifest.segments)
        excess_bytes = remote_bytes + uncopied_bytes - config.retention_bytes
    for segment in manifest.segments:
        over_size = excess_bytes > 0 and segment.raw_bytes <= excess_bytes
        over_age = config.retention_ms is not None and (
            wall_ms - segment.max_timestamp_ms > config.retention_ms
        )
        if not (over_size or over_age):
            break
        excess_bytes -= segment.raw_bytes
        start_offset = segment.end_offset
    return start_offset


def next_merge(
    segments: Sequence[RemoteSegment], segment_bytes: int, period_ms: int | None = None
) -> tuple[RemoteSegment, ...] | None:
    """Return neighbours to become one segment, the smallest first; None for none.

    Neighbours are sought of the smallest size first, and each size is eight times the one below, so that a
    record is merged about once a size. With `period_ms` they are of one period, or entangled.
    """
    for limit_bytes in reversed(list(_sizes(segment_bytes))):
        run: list[RemoteSegment] = []
        for segment in segments:
            if segment.raw_bytes >= limit_bytes:
                run = []
                continue
            if run and period_ms is not None and not _are_mergeable(run[-1], segment, period_ms):
                run = []
            run.append(segment)
            if len(run) == MERGED_SEGMENTS:
                return _filled(segments, run[0], limit_bytes, segment_bytes, period_ms)
        if period_ms is not None:
            entangled = _next_entangled(segments, limit_bytes, segment_bytes, period_ms)
            if entangled is not None:
                return entangled
    return None


def _are_mergeable(before: RemoteSegment, after: RemoteSegment, period_ms: int) -> bool:
    return period_of(before, period_ms) == period_of(after, period_ms)


def _next_entangled(
    segments: Sequence[RemoteSegment], limit_bytes: int, segment_bytes: int, period_ms: int
) -> tuple[RemoteSegment, ...] | None:
    """Return small neighbours whose periods go back and forth, to become a mixed segment; None for none.

    Between two of them a later period comes before an earlier one. Otherwise a topic whose timestamps always
    do that would have small segments for ever.
    """
    run: list[RemoteSegment] = []
    for segment in (*segments, None):
        if segment is not None and segment.raw_bytes < limit_bytes:
            run.append(segment)
            continue
        for tangle in _tangles(run, period_ms):
            if len(tangle) >= MERGED_SEGMENTS:
                return _filled(tangle, tangle[0], limit_bytes, segment_bytes)
        run = []
    return None


def _tangles(segments: Sequence[RemoteSegment], period_ms: int) -> Iterator[list[RemoteSegment]]:
    """Divide segments where all periods before are at most as late as all behind."""
    lowest_behind = list(
        accumulate((segment.first_timestamp_ms // period_ms for segment in reversed(segments)), min)
    )[::-1]
    tangle: list[RemoteSegment] = []
    highest: int | None = None
    for segment, lowest in zip(segments, lowest_behind, strict=True):
        if highest is not None and highest <= lowest:
            yield tangle
            tangle = []
        tangle.append(segment)
        period = segment.max_timestamp_ms // period_ms
        highest = period if highest is None else max(highest, period)
    if tangle:
        yield tangle


def _sizes(segment_bytes: int) -> Iterator[int]:
    limit_bytes = segment_bytes // MERGED_SEGMENTS
    while True:
        yield limit_bytes
        limit_bytes //= MERGED_SEGMENTS
        if limit_bytes < SMALLEST_LEVEL_BYTES:
            return


def _filled(
    segments: Sequence[RemoteSegment],
    first: RemoteSegment,
    limit_bytes: int,
    segment_bytes: int,
    period_ms: int | None = None,
) -> tuple[RemoteSegment, ...]:
    place = segments.index(first)
    taken: list[RemoteSegment] = []
    raw_bytes = 0
    for segment in segments[place : place + MOST_MERGED_SEGMENTS]:
        raw_bytes += segment.raw_bytes
        if segment.raw_bytes >= limit_bytes or raw_bytes > segment_bytes:
            break
        if period_ms is not None and not _are_mergeable(first, segment, period_ms):
            break
        taken.append(segment)
    return tuple(taken)


def next_rewrite(
    manifest: Manifest,
    log: LogFacts,
    segment_bytes: int,
    rewritten_to: Offset = 0,
    raw_per_local_byte: float = 1.0,
) -> tuple[RemoteSegment, ...] | None:
    """Return the neighbours to write again, because compaction has made some much smaller; None for none.

    Only below the cleaned offset, and only when that is in the tier itself: a record goes for a later one of
    its key, and the tier must have that. From the oldest segment on: a tombstone that the cleaned log does
    not have any more may leave the tier only after all older records of its key. Nothing is written again
    while the tier has segments that the local log has not: these may have such records, too.

    Since the last cleaning the segments up to `rewritten_to` were written again. `raw_per_local_byte` is the
    size of records in the tier, before compression, by that in the local log, which has them compressed.
    """
    cleaned_offset = log.cleaned_offset
    if cleaned_offset is None or cleaned_offset > manifest.end_offset:
        return None
    if manifest.segments and manifest.segments[0].base_offset < log.local_log_start_offset:
        return None
    groups: list[list[RemoteSegment]] = []
    for segment in manifest.segments:
        if segment.end_offset > cleaned_offset:
            break
        if segment.end_offset <= rewritten_to:
            continue
        if groups and local_bytes(log, groups[-1][0].base_offset, segment.end_offset) <= segment_bytes:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    if any(_is_worth_it(log, group, raw_per_local_byte) for group in groups):
        return tuple(groups[0])
    return None


def _is_worth_it(log: LogFacts, group: Sequence[RemoteSegment], raw_per_local_byte: float) -> bool:
    remote_bytes = sum(segment.raw_bytes for segment in group)
    kept_bytes = raw_per_local_byte * local_bytes(log, group[0].base_offset, group[-1].end_offset)
    return remote_bytes > WASTED_FACTOR * kept_bytes


def local_bytes(log: LogFacts, base_offset: Offset, end_offset: Offset) -> int:
    """Return about how many bytes the local log has of a range; of segments in part, in proportion."""
    total = 0
    for segment in log.segments:
        common = min(segment.end_offset, end_offset) - max(segment.base_offset, base_offset)
        if common > 0:
            total += segment.size_bytes * common // (segment.end_offset - segment.base_offset)
    return total
