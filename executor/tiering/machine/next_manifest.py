"""The say of a leader and its log about a manifest: whose it is, where both part, where the log begins."""

from typing import NamedTuple

from sparklog.executor.tiering.machine.events import EndReason, LogFacts
from sparklog.node.remote_log.machine.lineage import Lineage, compare
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import cut, emptied
from sparklog.protocol.types import LeaderEpoch, Offset


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

    Records between the tier's end and the first local segment are nowhere: the log begins behind them.
    """
    offset = max(manifest.log_start_offset, log.log_start_offset, retained_start_offset)
    is_urgent = retained_start_offset == offset > log.log_start_offset
    if log.local_log_start_offset > max(manifest.end_offset, log.log_start_offset):
        offset, is_urgent = max(offset, log.local_log_start_offset), True
    # Segments that no reader can ask for any more cost.
    drops = bool(manifest.segments) and manifest.segments[0].end_offset <= offset
    return LogStart(offset, is_urgent or drops)
