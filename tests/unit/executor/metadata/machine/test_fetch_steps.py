"""What a replica of the metadata log does with each answer of a leader."""

from uuid import UUID

import pytest

from sparklog.executor.metadata.machine.fetch_steps import (
    Append,
    BeginWith,
    FetchAnswer,
    PersistElection,
    Rest,
    TruncateTo,
    step_after,
)
from sparklog.executor.metadata.machine.quorum_voter import ElectionState, MetadataDivergedError, QuorumVoter
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.storage.machine.leader_epochs import EpochEndOffset, LeaderEpochs
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import LeaderEpoch, Offset, SnapshotId

DRIVER = 1_000_000
SENT_IN: LeaderEpoch = 4
END: Offset = 30
SNAPSHOT = SnapshotId(50, 3)


class History:
    """A log that ends at 30, of epoch 1, and from 20 on of epoch 3."""

    def __init__(self) -> None:
        self._epochs = LeaderEpochs()
        self._epochs.assign(1, 0)
        self._epochs.assign(3, 20)

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> EpochEndOffset | None:
        """Return where that epoch ends here."""
        return self._epochs.end_offset_for(leader_epoch, END)


def step(
    leader_epoch: LeaderEpoch | None = SENT_IN,
    error_code: ErrorCode = ErrorCode.none,
    snapshot_id: SnapshotId | None = None,
    diverging_epoch: tuple[LeaderEpoch, Offset] | None = None,
    high_watermark: Offset = 10,
) -> object:
    voter = QuorumVoter(VoterKey(1, UUID(int=1)), "c", ElectionState(SENT_IN, None, DRIVER), 1_000)
    voter.follows = True
    voter.high_watermark = high_watermark
    answer = FetchAnswer(DRIVER, leader_epoch, error_code, snapshot_id, diverging_epoch)
    return step_after(answer, SENT_IN, voter, History(), 0, END, now_ms=0)


def test_answers_lead_to_one_step_each() -> None:
    """Whatever else an answer says, who it is from comes first, and then its error."""
    fenced = ErrorCode.fenced_leader_epoch
    assert step() == Append()
    assert step(leader_epoch=5, snapshot_id=SNAPSHOT) == PersistElection()
    assert isinstance(step(leader_epoch=3, snapshot_id=SNAPSHOT), Rest)
    assert isinstance(step(leader_epoch=None), Rest)
    assert step(error_code=fenced, snapshot_id=SNAPSHOT) == Rest(fenced.name)
    assert step(snapshot_id=SNAPSHOT) == BeginWith(SNAPSHOT)
    assert step(diverging_epoch=(1, 20)) == TruncateTo(20)
    assert step(diverging_epoch=(3, 25)) == TruncateTo(25)


def test_log_that_is_no_beginning_of_the_leaders_is_never_cut_below_what_was_committed() -> None:
    """It may have been acted on: the broker ends rather than act on something else."""
    with pytest.raises(MetadataDivergedError, match="does not reach offset 30"):
        step(error_code=ErrorCode.offset_out_of_range)
    with pytest.raises(MetadataDivergedError, match="were committed"):
        step(diverging_epoch=(1, 20), high_watermark=21)
    with pytest.raises(MetadataDivergedError, match="the log's end"):
        step(diverging_epoch=(3, 30))
