"""The facts of a led log by which the tier's machine decides."""

from itertools import pairwise

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.tiering.bring_back_marker import BringBackMarker
from sparklog.executor.tiering.machine.events import LocalSegment, LogFacts
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.types import Offset


class FactsOfLog:
    """The facts of one replica's log, gathered every second: closed segments when there are others."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._segments: tuple[Segment, ...] = ()
        """The segments of the log that were looked through; the log replaces the tuple as a whole."""
        self._closed: tuple[LocalSegment, ...] = ()
        """Those of `_segments` but for the active one."""

    def now(self, marker: BringBackMarker | None) -> LogFacts:
        """Return the state of the log as it is now; `marker` is that in its directory."""
        replica = self._replica
        log = replica.log
        return LogFacts(
            log_start_offset=log.log_start_offset,
            local_log_start_offset=log.local_log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            segments=self._local_segments(log.segments.all, log.log_end_offset),
            leader_epochs=log.epochs.entries,
            log_start_is_guessed=log.log_start_is_guessed,
            cleaned_offset=log.cleaned_offset,
            is_brought_back_in_part=marker is not None and marker.applies_to(log),
        )

    def _local_segments(
        self, segments: tuple[Segment, ...], log_end_offset: Offset
    ) -> tuple[LocalSegment, ...]:
        if segments is not self._segments:
            self._segments = segments
            self._closed = tuple(
                LocalSegment(segment.base_offset, following.base_offset, segment.size_bytes)
                for segment, following in pairwise(segments)
            )
        active = segments[-1]
        return (*self._closed, LocalSegment(active.base_offset, log_end_offset, active.size_bytes))
