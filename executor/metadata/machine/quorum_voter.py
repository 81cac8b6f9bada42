"""A broker as voter of the metadata quorum: its vote, its leader, and the answers that count.

A pure machine. Order for the caller: call a method; if `election` or `cluster_id` changed,
have both on disk, fsynced; only then let the answer leave, or act on it. Rules kept:

- The epoch never goes back, and in an epoch there is at most one vote and at most one leader. So two
  candidates never have a majority in the same epoch.
- A vote is for a log at least as long as the own one. So a leader has every record that a majority had on
  disk.
- After a vote in an epoch nothing from the leader of an older one is taken in, and nothing is reported to
  it any more: a record that it counts later was on disk before the vote, and the vote has looked at it.
- A pre-vote changes nothing here, and is refused while the leader is heard: a candidate that is cut off
  does not depose a leader that works.
- The high watermark never goes back, and the log is never cut below it.
- A replica whose disk has lost acknowledged records grants no vote until it has caught up with a
  leader: its short log must not make a shorter candidate look long enough.

Source: KIP-595, KIP-853 (directory ids), KIP-996 (pre-vote).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset


class MetadataDivergedError(KafkaError):
    """The leader's log does not continue the records committed here."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unknown_server_error, message)


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The durable state of a voter; it lies in `quorum-state`."""

    leader_epoch: LeaderEpoch
    """The highest epoch that was heard of; 0 before the first."""
    voted: VoterKey | None = None
    """The candidate that has the vote in this epoch."""
    leader_id: BrokerId | None = None
    """The leader of this epoch, once known."""


NO_ELECTION: Final = ElectionState(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    cluster_id: str | None
    voter_id: BrokerId | None
    """The voter for which the candidate means the request; None if unknown."""
    voter_directory_id: UUID | None
    candidate: VoterKey
    candidate_epoch: LeaderEpoch
    log: LogPosition
    """Where the candidate's log ends."""
    pre_vote: bool
    """Whether it only asks how a vote would end."""


@dataclass(frozen=True, slots=True)
class QuorumAnswer:
    """The answer to a quorum request, with the leader known to the voter."""

    error_code: ErrorCode
    leader_epoch: LeaderEpoch
    leader_id: BrokerId | None
    vote_granted: bool = False


class FetchOutcome(Enum):
    """The use of an answer to a Fetch of the metadata log."""

    COUNTS = "it is the leader's whom this broker follows"
    ADOPTED = "it told of a newer epoch; its records were for an older one"
    STALE = "this broker's epoch has moved on since the fetch was sent, or the answer is an old leader's"


class QuorumVoter:
    """The decisions of one broker's replica of the metadata log; the log itself is the caller's."""

    def __init__(
        self, key: VoterKey, cluster_id: str | None, election: ElectionState, fetch_timeout_ms: int
    ) -> None:
        self.key = key
        self.cluster_id = cluster_id
        """None while the broker is blank: the first vote or leader that names a cluster decides."""
        self.election = election
        self.lacks_records = False
        """Set by who opens the log: it is shorter than what this replica has told to be on its disk."""
        self.follows = False
        """Whether this process has heard of the leader of this epoch; only then it fetches from it."""
        self.high_watermark: Offset | None = None
        """The end of what is known to be committed and is in the own log, exclusive; None while unknown."""
        self._fetch_timeout_ms = fetch_timeout_ms
        self._fetched_ms: int | None = None

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The highest known epoch."""
        return self.election.leader_epoch

    def vote(self, request: VoteRequest, log: LogPosition, now_ms: int) -> QuorumAnswer:
        """Grant a vote or refuse it; `log` is the end of the own log."""
        if self._is_foreign(request.cluster_id):
            return self._answer(ErrorCode.inconsistent_cluster_id)
        # A vote is for an epoch in which there is nothing yet; a pre-vote names the one before it.
        epoch_is_unused = request.log.last_epoch < request.candidate_epoch + request.pre_vote
        if min(request.log) < 0 or request.candidate.node_id < 0 or not epoch_is_unused:
            return self._answer(ErrorCode.invalid_request)
        if request.candidate_epoch < self.leader_epoch:
            return self._answer(ErrorCode.fenced_leader_epoch)
        if request.pre_vote:
            if not self._is_meant(request.voter_id, request.voter_directory_id):
                return self._answer(ErrorCode.invalid_voter_key)
            granted = self._is_long_enough(request.log, log) and not self.hears_leader(now_ms)
            return self._answer(ErrorCode.none, vote_granted=granted)
        if request.candidate_epoch > self.leader_epoch:
            self._enter(ElectionState(request.candidate_epoch))
        if not self._is_meant(request.voter_id, request.voter_directory_id):
            return self._answer(ErrorCode.invalid_voter_key)
        election = self.election
        free = (
            election.voted is None and election.leader_id is None and self._is_long_enough(request.log, log)
        )
        granted = free or election.voted == request.candidate
        if free:
            self.cluster_id = self.cluster_id or request.cluster_id
            self._enter(ElectionState(election.leader_epoch, request.candidate))
        return self._answer(ErrorCode.none, vote_granted=granted)

    def begin_quorum_epoch(
        self,
        cluster_id: str | None,
        leader_id: BrokerId,
        leader_epoch: LeaderEpoch,
        voter_id: BrokerId | None = None,
        voter_directory_id: UUID | None = None,
    ) -> QuorumAnswer:
        """Follow the leader of an epoch, unless a newer one is known."""
        refusal = self._refusal(cluster_id, leader_id, leader_epoch)
        if refusal is not None:
            return self._answer(refusal)
        if not self._is_meant(voter_id, voter_directory_id):
            return self._answer(ErrorCode.invalid_voter_key)
        self.cluster_id = self.cluster_id or cluster_id
        self._follow(leader_id, leader_epoch)
        return self._answer(ErrorCode.none)

    def end_quorum_epoch(
        self, cluster_id: str | None, leader_id: BrokerId, leader_epoch: LeaderEpoch
    ) -> QuorumAnswer:
        """The leader resigns: the next candidate need not wait for the fetch timeout."""
        refusal = self._refusal(cluster_id, leader_id, leader_epoch)
        if refusal is not None:
            return self._answer(refusal)
        if leader_epoch > self.leader_epoch or self.election.leader_id is None:
            self.cluster_id = self.cluster_id or cluster_id
            self._follow(leader_id, leader_epoch)
        self._fetched_ms = None
        return self._answer(ErrorCode.none)

    def fetch_answered(
        self,
        asked_in: LeaderEpoch,
        leader_id: BrokerId | None,
        leader_epoch: LeaderEpoch | None,
        now_ms: int,
    ) -> FetchOutcome:
        """Note the leader that answered a fetch sent in epoch `asked_in`; return the use of the answer.

        Only a valid answer may be appended or truncated by, and only before the next call here. None stands
        for a leader or an epoch that the answer does not name.
        """
        if leader_epoch is not None and leader_epoch > self.leader_epoch:
            self._enter(ElectionState(leader_epoch))
            if leader_id is not None:
                self._follow(leader_id, leader_epoch)
            return FetchOutcome.ADOPTED
        if asked_in != self.leader_epoch or leader_epoch != self.leader_epoch or not self.follows:
            return FetchOutcome.STALE
        self._fetched_ms = now_ms
        return FetchOutcome.COUNTS

    def appended(self, leader_high_watermark: Offset | None, log_end_offset: Offset) -> bool:
        """Note that the log has new records; return whether more of it is committed now.

        A new leader does not know its high watermark before a majority has a record of its own epoch; it
        sends none, or 0.
        """
        if leader_high_watermark is None:
            return False
        if log_end_offset >= leader_high_watermark > 0:
            self.lacks_records = False
        reached = min(leader_high_watermark, log_end_offset)
        if self.high_watermark is not None and reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def hears_leader(self, now_ms: int) -> bool:
        """Whether the leader has answered a fetch within the fetch timeout."""
        return self._fetched_ms is not None and now_ms - self._fetched_ms < self._fetch_timeout_ms

    def begun_at(self, end_offset: Offset) -> None:
        """Note that the log begins behind a snapshot, all of which was committed.

        Records that this replica acknowledged may lie above: only fetches show whether it has caught up.
        """
        self.high_watermark = max(self.high_watermark or 0, end_offset)

    def check_truncation(self, end_offset: Offset) -> None:
        """Refuse to cut the log at `end_offset` if that would remove what was committed.

        Raises:
            MetadataDivergedError: the high watermark lies above.
        """
        if self.high_watermark is not None and end_offset < self.high_watermark:
            raise MetadataDivergedError(
                f"the leader's metadata log parts from this copy at offset {end_offset}, but records up to "
                f"{self.high_watermark} were committed and may have been acted on"
            )

    def _refusal(
        self, cluster_id: str | None, leader_id: BrokerId, leader_epoch: LeaderEpoch
    ) -> ErrorCode | None:
        if self._is_foreign(cluster_id):
            return ErrorCode.inconsistent_cluster_id
        if leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        other_leads = leader_epoch == self.leader_epoch and self.election.leader_id not in (None, leader_id)
        return ErrorCode.invalid_request if leader_id < 0 or other_leads else None

    def _is_foreign(self, cluster_id: str | None) -> bool:
        """Whether a request is for another cluster; a blank broker needs an id in the request."""
        return cluster_id is None if self.cluster_id is None else cluster_id not in (None, self.cluster_id)

    def _is_meant(self, voter_id: BrokerId | None, voter_directory_id: UUID | None) -> bool:
        if voter_id is None:
            return True
        return voter_id == self.key.node_id and voter_directory_id in (None, self.key.directory_id)

    def _is_long_enough(self, candidates_log: LogPosition, own_log: LogPosition) -> bool:
        return candidates_log >= own_log and not self.lacks_records

    def _follow(self, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        if leader_epoch > self.leader_epoch:
            self._enter(ElectionState(leader_epoch, None, leader_id))
        elif self.election.leader_id is None:
            self._enter(ElectionState(leader_epoch, self.election.voted, leader_id))
        self.follows = True

    def _enter(self, election: ElectionState) -> None:
        self.election = election
        self.follows = False
        self._fetched_ms = None

    def _answer(self, error_code: ErrorCode, *, vote_granted: bool = False) -> QuorumAnswer:
        return QuorumAnswer(error_code, self.leader_epoch, self.election.leader_id, vote_granted)
