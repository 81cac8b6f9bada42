"""Comparison of a manifest with the log of a new leader: where both have the same records.

A leader epoch has one leader, so logs that have the same epoch at an offset agree up to there (KIP-101). Rule
kept: of two histories that part, the one with the newer last epoch goes on, and of two of the same epoch the
longer one. So no record of the tier is lost for an older or shorter log, however its leader was elected;
and a leader that wrote without a look into the tier keeps its records.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest
from sparklog.node.storage.machine.leader_epochs import EpochEntry
from sparklog.protocol.types import LeaderEpoch, Offset


class Lineage(Enum):
    CONTINUED = "the log has everything that the manifest has, or goes on where it ends"
    ADOPTED = "the manifest has more than the log: the log goes on where the manifest ends"
    DIVERGED = "the log has a newer history: the manifest is cut to the common part"


class Comparison(NamedTuple):
    lineage: Lineage
    common_end_offset: Offset


def compare(manifest: Manifest, log_epochs: Sequence[EpochEntry], log_end_offset: Offset) -> Comparison:
    """Return what becomes of manifest and log.

    An epoch of the log that has no record yet is not counted: a leader's own has none before it serves.
    """
    log_epochs = [entry for entry in log_epochs if entry.start_offset < log_end_offset]
    if not manifest.leader_epochs:
        # It has no record, and says only where the log begins.
        if log_end_offset >= manifest.end_offset:
            return Comparison(Lineage.CONTINUED, manifest.end_offset)
        newer = _last(log_epochs) > manifest.leader_epoch
        return Comparison(Lineage.DIVERGED if newer else Lineage.ADOPTED, log_end_offset)
    common = _common_end(manifest.leader_epochs, manifest.end_offset, log_epochs, log_end_offset)
    if common >= manifest.end_offset:
        return Comparison(Lineage.CONTINUED, manifest.end_offset)
    if _last(log_epochs) > _last(manifest.leader_epochs):
        return Comparison(Lineage.DIVERGED, common)
    return Comparison(Lineage.ADOPTED, common)


def _common_end(
    manifest_epochs: Sequence[EpochStart],
    manifest_end_offset: Offset,
    log_epochs: Sequence[EpochEntry],
    log_end_offset: Offset,
) -> Offset:
    ours = _ends(log_epochs, log_end_offset)
    for leader_epoch, end_offset in reversed(_ends(manifest_epochs, manifest_end_offset).items()):
        if leader_epoch in ours:
            return min(end_offset, ours[leader_epoch])
    # No epoch in common: a log that begins where the manifest ends, an empty one, or one much older.
    return min(log_end_offset, log_epochs[0].start_offset) if log_epochs else log_end_offset


def _ends(entries: Sequence[EpochStart | EpochEntry], end_offset: Offset) -> dict[LeaderEpoch, Offset]:
    ends = [*(entry.start_offset for entry in entries[1:]), end_offset]
    return {entry.leader_epoch: end for entry, end in zip(entries, ends, strict=False)}


def _last(entries: Sequence[EpochStart | EpochEntry]) -> LeaderEpoch:
    return entries[-1].leader_epoch if entries else -1
