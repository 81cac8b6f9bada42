"""The voter as a pure machine: every vote, every leader, every answer that comes too late."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.executor.metadata.machine.quorum_voter import (
    NO_ELECTION,
    ElectionState,
    FetchOutcome,
    MetadataDivergedError,
    QuorumAnswer,
    QuorumVoter,
    VoteRequest,
)
from sparklog.node.metadata_log.machine.log_position import EMPTY_LOG, LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode

DRIVER = 1_000_000
OURS = VoterKey(2, UUID(int=500))
FIRST, SECOND = VoterKey(DRIVER, UUID(int=901)), VoterKey(DRIVER, UUID(int=902))
OUR_LOG = LogPosition(3, 40)
FETCH_TIMEOUT_MS = 2_000


def voter_at(election: ElectionState = NO_ELECTION, cluster_id: str | None = "c") -> QuorumVoter:
    return QuorumVoter(OURS, cluster_id, election, FETCH_TIMEOUT_MS)


def request(
    candidate: VoterKey = FIRST, epoch: int = 5, log: LogPosition = OUR_LOG, *, pre_vote: bool = False
) -> VoteRequest:
    return VoteRequest(
        cluster_id="c",
        voter_id=OURS.node_id,
        voter_directory_id=OURS.directory_id,
        candidate=candidate,
        candidate_epoch=epoch,
        log=log,
        pre_vote=pre_vote,
    )


def following(epoch: int = 5) -> QuorumVoter:
    voter = voter_at(ElectionState(epoch, FIRST))
    voter.begin_quorum_epoch("c", DRIVER, epoch)
    return voter


def test_vote_for_a_newer_epoch_is_granted_and_remembered() -> None:
    """The vote is the promise on which a leader's authority rests."""
    voter = voter_at(ElectionState(4, None, DRIVER))
    answer = voter.vote(request(), OUR_LOG, 0)
    assert answer == QuorumAnswer(ErrorCode.none, 5, None, vote_granted=True)
    assert voter.election == ElectionState(5, FIRST)


def test_vote_is_given_once_an_epoch_but_repeated_to_whoever_has_it() -> None:
    """Two leaders of one epoch would both commit; and an answer that was lost must not lose the vote."""
    voter = voter_at()
    assert voter.vote(request(FIRST), OUR_LOG, 0).vote_granted
    assert not voter.vote(request(SECOND), OUR_LOG, 0).vote_granted
    assert voter.vote(request(FIRST), OUR_LOG, 0).vote_granted
    assert voter.election == ElectionState(5, FIRST)


def test_vote_that_was_given_before_a_restart_stands() -> None:
    """A voter that forgot its vote could give a second one in the same epoch."""
    before = voter_at()
    before.vote(request(FIRST), OUR_LOG, 0)
    after = voter_at(before.election)
    assert not after.vote(request(SECOND), OUR_LOG, 0).vote_granted
    assert after.vote(request(FIRST), OUR_LOG, 0).vote_granted


@pytest.mark.parametrize(
    ("log", "granted"),
    [
        (LogPosition(3, 39), False),
        (LogPosition(3, 40), True),
        (LogPosition(2, 99), False),
        (LogPosition(4, 1), True),
        (EMPTY_LOG, False),
    ],
)
def test_vote_goes_only_to_a_log_that_is_not_shorter(log: LogPosition, granted: bool) -> None:
    """A leader without a record that a majority had on disk would lose it; epochs come before lengths."""
    voter = voter_at()
    assert voter.vote(request(log=log), OUR_LOG, 0).vote_granted is granted
    assert voter.election == ElectionState(5, FIRST if granted else None), (
        "the epoch is taken over either way"
    )


def test_vote_refused_for_a_short_log_is_still_free_for_another() -> None:
    """Else one candidate that asks too early would spoil the epoch."""
    voter = voter_at()
    assert not voter.vote(request(FIRST, log=EMPTY_LOG), OUR_LOG, 0).vote_granted
    assert voter.vote(request(SECOND), OUR_LOG, 0).vote_granted


def test_vote_for_an_older_epoch_is_fenced_with_the_newer_one() -> None:
    """The candidate learns from the answer beyond which epoch it has to go."""
    voter = voter_at(ElectionState(9, SECOND, DRIVER))
    assert voter.vote(request(epoch=8), OUR_LOG, 0) == QuorumAnswer(ErrorCode.fenced_leader_epoch, 9, DRIVER)
    assert voter.election == ElectionState(9, SECOND, DRIVER)


def test_vote_in_an_epoch_whose_leader_is_known_is_refused() -> None:
    """The leader of an epoch stays its only one, whoever voted for it."""
    voter = voter_at()
    voter.begin_quorum_epoch("c", DRIVER, 5)
    assert voter.vote(request(SECOND, epoch=5), OUR_LOG, 0) == QuorumAnswer(ErrorCode.none, 5, DRIVER)


def test_vote_for_an_epoch_in_which_records_exist_is_invalid() -> None:
    """A candidate has never seen a leader in the epoch that it asks for."""
    voter = voter_at()
    assert voter.vote(request(epoch=5, log=LogPosition(5, 50)), OUR_LOG, 0).error_code is (
        ErrorCode.invalid_request
    )
    assert voter.election == NO_ELECTION


def test_vote_meant_for_another_directory_is_not_given() -> None:
    """A broker that came back with an empty disk is not the voter whose vote would count."""
    voter = voter_at()
    answer = voter.vote(replace(request(), voter_directory_id=UUID(int=777)), OUR_LOG, 0)
    assert answer == QuorumAnswer(ErrorCode.invalid_voter_key, 5, None)


def test_request_of_another_cluster_changes_nothing() -> None:
    """Nothing of one cluster may touch the disks of another."""
    voter = voter_at(ElectionState(3, FIRST))
    answer = voter.vote(replace(request(), cluster_id="other"), OUR_LOG, 0)
    assert answer == QuorumAnswer(ErrorCode.inconsistent_cluster_id, 3, None)
    assert voter.begin_quorum_epoch("other", DRIVER, 9).error_code is ErrorCode.inconsistent_cluster_id
    assert voter.end_quorum_epoch("other", DRIVER, 9).error_code is ErrorCode.inconsistent_cluster_id
    assert (voter.cluster_id, voter.election) == ("c", ElectionState(3, FIRST))


def test_blank_voter_belongs_to_the_cluster_that_first_asks_for_its_vote() -> None:
    """A blank directory is formatted by the quorum's word, never by a guess."""
    voter = voter_at(cluster_id=None)
    assert not voter.vote(replace(request(), cluster_id=None), EMPTY_LOG, 0).vote_granted
    assert voter.cluster_id is None
    assert voter.vote(request(pre_vote=True), EMPTY_LOG, 0).vote_granted
    assert voter.cluster_id is None, "a pre-vote changes nothing"
    assert voter.vote(request(), EMPTY_LOG, 0).vote_granted
    assert voter.cluster_id == "c"
    assert voter.begin_quorum_epoch("other", DRIVER, 9).error_code is ErrorCode.inconsistent_cluster_id


def test_blank_voter_belongs_to_the_cluster_whose_leader_it_follows() -> None:
    """A broker that joins later is never asked for its vote."""
    voter = voter_at(cluster_id=None)
    assert voter.begin_quorum_epoch("c", DRIVER, 2).error_code is ErrorCode.none
    assert (voter.cluster_id, voter.election, voter.follows) == ("c", ElectionState(2, None, DRIVER), True)


def test_pre_vote_changes_nothing() -> None:
    """A candidate may ask how a vote would end without taking the epoch from a leader that works."""
    voter = voter_at(ElectionState(4, None, DRIVER))
    answer = voter.vote(request(epoch=4, pre_vote=True), OUR_LOG, 0)
    assert answer == QuorumAnswer(ErrorCode.none, 4, DRIVER, vote_granted=True)
    assert not voter.vote(request(epoch=9, log=LogPosition(3, 39), pre_vote=True), OUR_LOG, 0).vote_granted
    assert voter.election == ElectionState(4, None, DRIVER)
    assert voter.vote(request(epoch=3, pre_vote=True), OUR_LOG, 0).error_code is ErrorCode.fenced_leader_epoch


def test_pre_vote_is_refused_while_the_leader_answers_fetches() -> None:
    """One driver that sees the brokers while another leads them must not depose it."""
    voter = following()
    assert voter.vote(request(SECOND, pre_vote=True), OUR_LOG, 900).vote_granted, "nothing was heard yet"
    assert voter.fetch_answered(5, DRIVER, 5, 1_000) is FetchOutcome.COUNTS
    assert not voter.vote(request(SECOND, pre_vote=True), OUR_LOG, 2_999).vote_granted
    assert voter.vote(request(SECOND, pre_vote=True), OUR_LOG, 3_000).vote_granted


def test_pre_vote_is_granted_at_once_when_the_leader_has_resigned() -> None:
    """A driver that ends in order costs its successor no wait; its epoch stays its own all the same."""
    voter = following()
    voter.fetch_answered(5, DRIVER, 5, 1_000)
    assert voter.end_quorum_epoch("c", DRIVER, 5) == QuorumAnswer(ErrorCode.none, 5, DRIVER)
    assert voter.vote(request(SECOND, pre_vote=True), OUR_LOG, 1_001).vote_granted
    assert not voter.vote(request(SECOND), OUR_LOG, 1_001).vote_granted
    assert voter.end_quorum_epoch("c", DRIVER, 4).error_code is ErrorCode.fenced_leader_epoch


def test_leader_of_a_newer_epoch_is_followed_and_an_older_one_refused() -> None:
    """That is how an old driver learns that it is deposed."""
    voter = following(5)
    assert voter.begin_quorum_epoch("c", DRIVER, 7) == QuorumAnswer(ErrorCode.none, 7, DRIVER)
    assert voter.election == ElectionState(7, None, DRIVER)
    assert voter.begin_quorum_epoch("c", DRIVER, 6) == QuorumAnswer(ErrorCode.fenced_leader_epoch, 7, DRIVER)
    assert voter.begin_quorum_epoch("c", 3, 7).error_code is ErrorCode.invalid_request
    assert voter.election == ElectionState(7, None, DRIVER)


def test_leader_known_from_before_a_restart_is_followed_only_once_it_is_heard_of() -> None:
    """The process that led may be dead; fetches go to whoever says now that it leads."""
    voter = voter_at(ElectionState(5, FIRST, DRIVER))
    assert not voter.follows
    assert voter.fetch_answered(5, DRIVER, 5, 0) is FetchOutcome.STALE
    voter.begin_quorum_epoch("c", DRIVER, 5)
    assert voter.follows
    assert voter.election == ElectionState(5, FIRST, DRIVER)


def test_answer_to_a_fetch_of_an_older_epoch_is_dropped_after_a_vote() -> None:
    """Else a deposed leader could have a record committed that the new leader does not have."""
    voter = following(5)
    assert voter.vote(request(SECOND, epoch=6), OUR_LOG, 0).vote_granted
    assert voter.fetch_answered(5, DRIVER, 5, 10) is FetchOutcome.STALE
    assert not voter.follows, "nor is anything reported to it any more"
    voter.begin_quorum_epoch("c", DRIVER, 6)
    assert voter.fetch_answered(5, DRIVER, 6, 20) is FetchOutcome.STALE
    assert voter.fetch_answered(6, DRIVER, 6, 20) is FetchOutcome.COUNTS


def test_answer_of_a_leader_behind_the_own_epoch_is_dropped() -> None:
    """A driver that does not know of its deposition says so by its epoch."""
    voter = following(5)
    assert voter.fetch_answered(5, DRIVER, 4, 0) is FetchOutcome.STALE
    assert voter.fetch_answered(5, None, None, 0) is FetchOutcome.STALE


def test_newer_epoch_in_an_answer_is_adopted() -> None:
    """A broker that missed the election follows on without waiting to be told again."""
    voter = following(5)
    assert voter.fetch_answered(5, DRIVER, 8, 0) is FetchOutcome.ADOPTED
    assert (voter.election, voter.follows) == (ElectionState(8, None, DRIVER), True)
    assert voter.fetch_answered(8, None, 9, 0) is FetchOutcome.ADOPTED
    assert (voter.election, voter.follows) == (ElectionState(9), False)


def test_high_watermark_follows_the_leaders_up_to_the_own_log_and_never_goes_back() -> None:
    """Records are acted on below it; a new leader knows less at first, and takes nothing back."""
    voter = following()
    assert not voter.appended(None, 10)
    assert voter.high_watermark is None
    voter.appended(0, 10)
    assert voter.high_watermark == 0, "known to be nothing: a leader that knows no more may let us wait"
    assert voter.appended(12, 10)
    assert voter.high_watermark == 10
    assert not voter.appended(4, 11)
    assert voter.high_watermark == 10
    assert voter.appended(11, 11)


def test_voter_that_lost_records_votes_again_only_once_it_has_caught_up() -> None:
    """It vouched for what it lacks: with its vote a leader without these records could have a majority."""
    voter = voter_at()
    voter.lacks_records = True
    assert not voter.vote(request(pre_vote=True), OUR_LOG, 0).vote_granted
    assert not voter.vote(request(), OUR_LOG, 0).vote_granted
    assert voter.election == ElectionState(5), "it keeps the rule of epochs"
    voter.begin_quorum_epoch("c", DRIVER, 6)
    voter.appended(0, 50)
    assert voter.lacks_records, "a leader that has committed nothing yet tells nothing"
    voter.appended(60, 50)
    assert voter.lacks_records
    voter.appended(60, 60)
    assert not voter.lacks_records
    assert voter.vote(request(epoch=7, log=LogPosition(6, 60)), LogPosition(6, 60), 0).vote_granted


def test_voter_that_lost_records_and_begins_with_a_snapshot_has_not_caught_up_by_that() -> None:
    """The leader's snapshot may end below what this replica vouched for; below it, all was committed."""
    voter = voter_at()
    voter.lacks_records = True
    voter.begun_at(40)
    assert voter.lacks_records
    assert voter.high_watermark == 40
    with pytest.raises(MetadataDivergedError, match="offset 39"):
        voter.check_truncation(39)
    voter.begun_at(30)
    assert voter.high_watermark == 40
    voter.appended(60, 60)
    assert not voter.lacks_records


def test_truncation_below_the_high_watermark_is_refused() -> None:
    """What was committed and acted on cannot be taken back; such a leader was elected against the rules."""
    voter = following()
    voter.check_truncation(0)
    voter.appended(10, 10)
    voter.check_truncation(10)
    with pytest.raises(MetadataDivergedError, match="offset 9"):
        voter.check_truncation(9)
