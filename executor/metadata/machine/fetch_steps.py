"""The step of a replica of the metadata log after a Fetch response. Pure.

Rule kept: an answer counts only if this broker is still in the epoch in which it asked, so nothing may be
awaited between `step_after` and the step. Once it is taken, the replica fetches again.

Source: KIP-595 (Fetch as replication of the metadata log), KIP-630 (snapshots).
"""

from typing import NamedTuple, TypeAlias

from sparklog.executor.metadata.machine.quorum_voter import FetchOutcome, MetadataDivergedError, QuorumVoter
from sparklog.node.storage.machine.epoch_checks import LeaderEpochHistory, truncation_offset
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, SnapshotId


class FetchAnswer(NamedTuple):
    """A Fetch response without its records and high watermark."""

    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch | None
    error_code: ErrorCode
    snapshot_id: SnapshotId | None
    """The snapshot to begin with: the leader's log begins above this one's end."""
    diverging_epoch: tuple[LeaderEpoch, Offset] | None
    """The largest epoch that both logs have, and its end in the leader's."""


class PersistElection(NamedTuple):
    """Write the new epoch to disk; the answer was for an older one."""


class Rest(NamedTuple):
    """Wait a moment: the answer is of no use."""

    reason: str


class BeginWith(NamedTuple):
    """Download the snapshot, and start the log behind it."""

    snapshot_id: SnapshotId


class TruncateTo(NamedTuple):
    """Remove the records from there on; none of them was committed."""

    end_offset: Offset


class Append(NamedTuple):
    """Append the records, and then advance the high watermark."""


Step: TypeAlias = PersistElection | Rest | BeginWith | TruncateTo | Append


def step_after(
    answer: FetchAnswer,
    asked_in: LeaderEpoch,
    voter: QuorumVoter,
    history: LeaderEpochHistory,
    log_start_offset: Offset,
    log_end_offset: Offset,
    now_ms: int,
) -> Step:
    """Return the step after the answer to a fetch that was sent in epoch `asked_in`, from the log's end.

    Raises:
        MetadataDivergedError: this log is not the beginning of the leader's, nor can it be made one.
    """
    outcome = voter.fetch_answered(asked_in, answer.leader_id, answer.leader_epoch, now_ms)
    if outcome is FetchOutcome.ADOPTED:
        return PersistElection()
    if outcome is FetchOutcome.STALE:
        return Rest(f"an answer of leader epoch {answer.leader_epoch} is too late: {voter.election}")
    if answer.error_code is ErrorCode.offset_out_of_range:
        raise MetadataDivergedError(
            f"the leader's metadata log does not reach offset {log_end_offset}, where this broker's ends"
        )
    if answer.error_code is not ErrorCode.none:
        return Rest(answer.error_code.name)
    if answer.snapshot_id is not None:
        # The leader's records below the high watermark need not be the same as here.
        return BeginWith(answer.snapshot_id)
    if answer.diverging_epoch is None:
        return Append()
    end_offset = truncation_offset(history, answer.diverging_epoch, log_start_offset, log_end_offset)
    if end_offset >= log_end_offset:
        raise MetadataDivergedError(f"the leader reports a divergence at {end_offset}, the log's end")
    voter.check_truncation(end_offset)
    return TruncateTo(end_offset)
