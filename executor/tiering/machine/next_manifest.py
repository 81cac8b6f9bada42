"""The say of a leader and its log about a manifest: whose it is, where both part, where the log begins."""

from typing import Final, NamedTuple

from sparklog.executor.tiering.machine.events import EndReason, LogFacts, TierConfig
from sparklog.executor.tiering.machine.plans import retained_start
from sparklog.node.remote_log.machine.lineage import Lineage, compare
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import cut, emptied, started_at
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs

RETENTION_INTERVAL_MS: Final = 10_000


class LogStart(NamedTuple):
    """Where a log begins, and whether the tier has to say so at once."""

    offset: Offset
    is_urgent: bool


def reason_to_end(manifest: Manifest, owner_epoch: int, leader_epoch: LeaderEpoch) -> EndReason | None:
    """Return why a leader of these epochs must not write to a partition whose manifest this is, if so."""
    if manifest.owner_epoch > owner_epoch:
        return EndReason.OWNER_REPLACED
    if manifest.owner_epoch == owner_epoch and manifest.leader_epoch > leader_epoch:
        return EndReason.LEADER_REPLACED
    if manifest.owner_epoch < owner_epoch and manifest.leader_epoch >= leader_epoch:
        return EndReason.LEADER_EPOCH_BEHIND
    return None


def reconciled(manifest: Manifest, log: LogFacts) -> Manifest:
    """Return the manifest without what a newer history of the log has replaced."""
    comparison = compare(manifest, log.leader_epochs, log.log_end_offset)
    if comparison.lineage is not Lineage.DIVERGED:
        return manifest
    if comparison.common_end_offset <= manifest.log_start_offset:
        return emptied(manifest, max(log.local_log_start_offset, log.log_start_offset))
    return cut(manifest, comparison.common_end_offset)


def next_log_start(manifest: Manifest, log: LogFacts, retained_start_offset: Offset) -> LogStart:
    """Return the log start for the manifest: by retention, by the log, and by what neither has.

    Records between the tier's end and the first local segment are nowhere: the log begins behind them. A
    start that recovery has guessed deletes nothing.
    """
    logs_start = manifest.log_start_offset if log.log_start_is_guessed else log.log_start_offset
    offset = max(manifest.log_start_offset, logs_start, retained_start_offset)
    is_urgent = retained_start_offset == offset > log.log_start_offset
    if log.local_log_start_offset > max(manifest.end_offset, log.log_start_offset):
        offset, is_urgent = max(offset, log.local_log_start_offset), True
    # Segments that no reader can ask for any more cost.
    drops = bool(manifest.segments) and manifest.segments[0].end_offset <= offset
    return LogStart(offset, is_urgent or drops)


class LogStarts:
    """When the manifest takes over a log start: at once, or with others after a while."""

    def __init__(self) -> None:
        self._next_retention_ms = 0
        self._moved_ms: int | None = None
        """When the log start was seen first that the manifest does not have."""

    def check_retention(self) -> None:
        """Look at retention with the next event: the manifest is another one."""
        self._next_retention_ms = 0

    def advanced(
        self,
        manifest: Manifest,
        log: LogFacts,
        config: TierConfig,
        *,
        now_ms: int,
        wall_ms: TimestampMs,
        at_once: bool,
    ) -> Manifest:
        """Return the manifest with a new log start, if it has to have one by now.

        Requests to delete records wait for sparklog.remote.max.lag.ms unless a segment goes with them or the
        manifest is written `at_once` for another reason.
        """
        retained = manifest.log_start_offset
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + RETENTION_INTERVAL_MS
            retained = retained_start(manifest, log, config, wall_ms)
        start = next_log_start(manifest, log, retained)
        if start.offset == manifest.log_start_offset:
            self._moved_ms = None
            return manifest
        if self._moved_ms is None:
            self._moved_ms = now_ms
        if start.is_urgent or at_once or now_ms - self._moved_ms >= config.max_lag_ms:
            return started_at(manifest, start.offset)
        return manifest
