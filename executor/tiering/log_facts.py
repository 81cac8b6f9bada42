"""The facts of a led log by which the tier's machine decides."""

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.tiering.bring_back_marker import BringBackMarker
from sparklog.executor.tiering.machine.events import LocalSegment, LogFacts


def facts_of(replica: Replica, marker: BringBackMarker | None) -> LogFacts:
    """Return the state of a replica's log as it is now; `marker` is that in its directory."""
    log = replica.log
    segments = log.segments.all
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    return LogFacts(
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        segments=tuple(
            LocalSegment(segment.base_offset, end_offset, segment.size_bytes)
            for segment, end_offset in zip(segments, ends, strict=True)
        ),
        leader_epochs=tuple(log.epochs.entries),
        log_start_is_guessed=log.log_start_is_guessed,
        cleaned_offset=log.cleaned_offset,
        is_brought_back_in_part=marker is not None and marker.applies_to(log),
    )
