"""What a replica of the metadata log does with the answer to a Fetch. Pure.

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
    """What an answer says, but for the records and what of them is committed."""

    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch | None
    error_code: ErrorCode
    snapshot_id: SnapshotId | None
    """What to begin with: the leader's log does not go back to where this one ends."""
    diverging_epoch: tuple[LeaderEpoch, Offset] | None
    """The largest epoch that both logs have, and its end in the leader's."""


class PersistElection(NamedTuple):
    """Have on disk that the epoch has changed; the answer was for an older one."""


class Rest(NamedTuple):
    """Wait a moment: the answer is of no use."""

    reason: str


class BeginWith(NamedTuple):
    """Download the snapshot, and let the log begin behind it."""

    snapshot_id: SnapshotId


class TruncateTo(NamedTuple):
    """Forget the records from there on; none of them was committed."""

    end_offset: Offset


class Append(NamedTuple):
    """Take the records, and then what is committed of them."""


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
    """Return what to do with the answer to a fetch that was sent in epoch `asked_in`, from the log's end.

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
        # What is below the high watermark here need not be what the leader has there.
        return BeginWith(answer.snapshot_id)
    if answer.diverging_epoch is None:
        return Append()
    end_offset = truncation_offset(history, answer.diverging_epoch, log_start_offset, log_end_offset)
    if end_offset >= log_end_offset:
        raise MetadataDivergedError(f"the leader reports a divergence at {end_offset}, the log's end")
    voter.check_truncation(end_offset)
    return TruncateTo(end_offset)
