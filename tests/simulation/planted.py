"""Bugs that the simulator must find: each a small patch of a production machine, in force inside a `with`.

They prove that the invariants can fail and that the faults reach the places where they would.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sparklog.driver.controller.machine import elections, partition_changes
from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.partition_changes import Election
from sparklog.driver.controller.machine.requests import alter_partition, broker_registration
from sparklog.driver.controller.machine.unclean_recovery import UncleanRecovery
from sparklog.driver.controller.machine.unsettled_partitions import UnsettledPartitions
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.executor.control.machine.broker_lifecycle import BrokerLifecycle
from sparklog.executor.metadata.machine.quorum_voter import ElectionState, QuorumVoter, VoteRequest
from sparklog.executor.partitions.machine.events import AdvanceHighWatermark
from sparklog.executor.partitions.machine.follower import PartitionFetch, PartitionFollower
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.executor.partitions.replica import Replica
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata_log.machine import snapshot_records
from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.node.storage.machine.producer_states import FRESH, ProducerStates
from sparklog.node.storage.machine.recovery_rules import SoundPrefix
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId
from tests.simulation.disk import Disk
from tests.simulation.planted_balancing import BALANCING_BUGS
from tests.simulation.planted_bug import PlantedBug, Replacement
from tests.simulation.planted_cleaning import CLEANING_BUGS
from tests.simulation.planted_coordinators import COORDINATOR_BUGS
from tests.simulation.planted_members import MEMBER_BUGS
from tests.simulation.planted_reassignments import REASSIGNMENT_BUGS
from tests.simulation.planted_sinks import SINK_BUGS
from tests.simulation.planted_transaction_logs import TRANSACTION_LOG_BUGS
from tests.simulation.planted_transactions import TRANSACTION_BUGS
from tests.simulation.voting import Voting


def _truncate_to_high_watermark() -> Sequence[Replacement]:
    follow = Replica.follow

    def follow_after_truncation(self: Replica, registration: Any, settings: Any) -> None:
        if self.leader_epoch != registration.leader_epoch:
            self.log.truncate_to(self.high_watermark)
        follow(self, registration, settings)

    return [Replacement(Replica, "follow", follow_after_truncation)]


def _fetch_before_truncation() -> Sequence[Replacement]:
    def next_fetch(self: PartitionFollower) -> PartitionFetch | None:
        if self.leader_id is None or self._epoch_is_over:
            return None
        return PartitionFetch(self.leader_epoch, self.log_end_offset, None)

    return [Replacement(PartitionFollower, "next_fetch", property(next_fetch))]


def _high_watermark_over_isr_only() -> Sequence[Replacement]:
    def advance(self: PartitionLeader, now_ms: int) -> list[Any]:
        if self.is_under_min_isr:
            return []
        ends = [self.followers[member].log_end_offset or 0 for member in self.isr - {self.broker_id}]
        committed = min([self.log_end_offset, *ends])
        if committed <= self.high_watermark:
            return []
        self.high_watermark = committed
        return [AdvanceHighWatermark(committed)]

    return [Replacement(PartitionLeader, "_advance_high_watermark", advance)]


def _shrink_before_commit() -> Sequence[Replacement]:
    propose = PartitionLeader._propose

    def propose_and_count(self: PartitionLeader, isr: Any) -> Any:
        proposal = propose(self, isr)
        self.maximal_isr = frozenset(isr)
        return proposal

    return [Replacement(PartitionLeader, "_propose", propose_and_count)]


def _join_below_epoch_start() -> Sequence[Replacement]:
    def may_join(self: PartitionLeader, broker_id: int) -> bool:
        log_end_offset = self.followers[broker_id].log_end_offset
        return (
            log_end_offset is not None
            and log_end_offset >= self.high_watermark
            and self._is_eligible(broker_id)
        )

    return [Replacement(PartitionLeader, "_may_join", may_join)]


def _acknowledge_under_min_isr() -> Sequence[Replacement]:
    return [Replacement(PartitionLeader, "is_under_min_isr", property(lambda self: False))]


def _no_partition_epoch() -> Sequence[Replacement]:
    check = alter_partition._check_epochs

    def check_leader_epoch_only(broker_id: int, partition: Any, proposed: Any) -> None:
        proposed = replace(proposed, partition_epoch=partition.partition_epoch)
        check(broker_id, partition, proposed)

    return [Replacement(alter_partition, "_check_epochs", check_leader_epoch_only)]


def _stale_broker_epoch() -> Sequence[Replacement]:
    def is_eligible(self: PartitionLeader, broker_id: int) -> bool:
        status = self.brokers.get(broker_id)
        return (
            self.followers[broker_id].last_fetch_ms is not None and status is not None and status.may_join_isr
        )

    check = alter_partition._check_members

    def check_members(cluster: ClusterState, partition: Any, proposed: Any) -> None:
        members = tuple(replace(member, broker_epoch=-1) for member in proposed.new_isr_with_epochs)
        check(cluster, partition, replace(proposed, new_isr_with_epochs=members))

    return [
        Replacement(PartitionLeader, "_is_eligible", is_eligible),
        Replacement(alter_partition, "_check_members", check_members),
    ]


def _lease_ignored() -> Sequence[Replacement]:
    return [Replacement(BrokerLifecycle, "holds_lease", lambda self, now_ms: True)]


def _lease_with_old_metadata() -> Sequence[Replacement]:
    return [Replacement(BrokerLifecycle, "holds_lease", BrokerLifecycle._was_answered_lately)]


def _always_unclean() -> Sequence[Replacement]:
    return [
        Replacement(elections, "election_of", lambda rules: Election.UNCLEAN),
        Replacement(alter_partition, "election_of", lambda rules: Election.UNCLEAN),
    ]


def _high_watermark_at_log_end() -> Sequence[Replacement]:
    lead = Replica.lead

    def lead_and_commit(self: Replica, registration: Any, *arguments: Any) -> None:
        if self.leader_epoch != registration.leader_epoch:
            self.progress.high_watermark = self.log.log_end_offset
        lead(self, registration, *arguments)

    return [Replacement(Replica, "lead", lead_and_commit)]


def _sequence_unchecked() -> Sequence[Replacement]:
    return [
        Replacement(ProducerStates, "check", lambda self, header, verification=None, *, verifies=False: FRESH)
    ]


def _two_incarnations() -> Sequence[Replacement]:
    def stay(cluster: ClusterState, existing: Any, previous_broker_epoch: int) -> list[Any]:
        return []

    return [Replacement(broker_registration, "_previous_incarnation_ends", stay)]


def _half_an_incarnation_ends() -> Sequence[Replacement]:
    ends = broker_registration._previous_incarnation_ends

    def end_some(cluster: ClusterState, *arguments: Any) -> list[Any]:
        return ends(cluster, *arguments)[: cluster.partitions_per_decision - 1]

    return [Replacement(broker_registration, "_previous_incarnation_ends", end_some)]


def _rest_forgotten() -> Sequence[Replacement]:
    return [Replacement(UnsettledPartitions, "changed", lambda *_: None)]


def _crash_taken_for_clean_stop() -> Sequence[Replacement]:
    def leave(cluster: ClusterState, existing: Any, previous_broker_epoch: int) -> list[Any]:
        return elections.remove_from_isrs(cluster, (existing.broker_id,))

    return [Replacement(broker_registration, "_previous_incarnation_ends", leave)]


def _last_leader_leads_again() -> Sequence[Replacement]:
    def last_leader(self: UncleanRecovery, key: Any, waiting: Any) -> BrokerId:
        last: BrokerId = waiting.partition.last_known_elr[0]
        return last if last in waiting.present else waiting.present[0]

    return [Replacement(UncleanRecovery, "_longest", last_leader)]


def _only_last_leader_awaited() -> Sequence[Replacement]:
    last_in_sync = partition_changes._last_in_sync

    def the_leader_if_it_is_one(partition: PartitionRegistration) -> tuple[BrokerId, ...]:
        every = last_in_sync(partition)
        return tuple(broker_id for broker_id in every if broker_id == partition.leader) or every

    return [Replacement(partition_changes, "_last_in_sync", the_leader_if_it_is_one)]


def _eligible_forgotten() -> Sequence[Replacement]:
    return [Replacement(partition_changes, "_eligible_leader_replicas", lambda *_: ())]


def _eligible_beside_enough() -> Sequence[Replacement]:
    return [Replacement(partition_changes, "_commits_nothing", lambda *_: True)]


def _smaller_isr_before_metadata() -> Sequence[Replacement]:
    answered = PartitionLeader._isr_proposal_answered

    def act_on_answer(self: PartitionLeader, event: Any) -> list[Any]:
        pending = self._pending
        answers = pending is not None and pending.proposal == event.proposal
        is_newer = event.leader_epoch == self.leader_epoch and event.partition_epoch > self.partition_epoch
        if answers and event.error_code == ErrorCode.none and is_newer:
            was_under = self.is_under_min_isr
            self._commit(event.isr, event.partition_epoch)
            return self._after_isr_change(event.now_ms, was_under)
        return answered(self, event)

    return [Replacement(PartitionLeader, "_isr_proposal_answered", act_on_answer)]


def _damage_ignored() -> Sequence[Replacement]:
    offer = SoundPrefix.offer

    def offer_anything(self: SoundPrefix, *batch: int, crc_matches: bool) -> str | None:
        return offer(self, *batch, crc_matches=True)

    return [Replacement(SoundPrefix, "offer", offer_anything)]


def _vote_not_persisted() -> Sequence[Replacement]:
    def write(self: Voting) -> None:
        self._disk.cluster_id = self.voter.cluster_id
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()
        self._settled()

    return [Replacement(Voting, "_write", write)]


def _two_votes_in_an_epoch() -> Sequence[Replacement]:
    vote = QuorumVoter.vote

    def vote_again(self: QuorumVoter, request: VoteRequest, *arguments: Any) -> Any:
        if not request.pre_vote:
            self.election = ElectionState(self.election.leader_epoch)
        return vote(self, request, *arguments)

    return [Replacement(QuorumVoter, "vote", vote_again)]


def _commit_of_older_epoch() -> Sequence[Replacement]:
    advance = QuorumLeader._advance_high_watermark

    def advance_early(self: QuorumLeader) -> bool:
        self._epoch_start_offset = -1
        return advance(self)

    return [Replacement(QuorumLeader, "_advance_high_watermark", advance_early)]


def _counted_before_fsync() -> Sequence[Replacement]:
    def fetch(self: Voting) -> None:
        if not self._fetching and self.voter.follows:
            self._fetching = True
            self._fetch()

    return [Replacement(Voting, "_flush", fetch)]


def _minority_commits() -> Sequence[Replacement]:
    return [Replacement(VoterSet, "majority", property(lambda self: max(1, len(self) // 2)))]


def _directory_id_kept() -> Sequence[Replacement]:
    lose = Disk.lose_everything

    def lose_all_but_the_id(self: Disk, directory_id: Any) -> None:
        lose(self, self.directory_id)

    return [Replacement(Disk, "lose_everything", lose_all_but_the_id)]


def _acted_on_before_commit() -> Sequence[Replacement]:
    def appended(self: QuorumVoter, leader_high_watermark: Any, log_end_offset: int) -> bool:
        self.high_watermark = log_end_offset
        return True

    return [Replacement(QuorumVoter, "appended", appended)]


def _snapshot_one_record_short() -> Sequence[Replacement]:
    records = snapshot_records.snapshot_records
    return [Replacement(snapshot_records, "snapshot_records", lambda image: list(records(image))[:-1])]


def _damaged_voter_votes() -> Sequence[Replacement]:
    return [Replacement(QuorumVoter, "_is_long_enough", lambda self, theirs, own: theirs >= own)]


def _fenced_joins_isr() -> Sequence[Replacement]:
    def is_eligible(self: PartitionLeader, broker_id: int) -> bool:
        return self.followers[broker_id].last_fetch_ms is not None

    return [
        Replacement(PartitionLeader, "_is_eligible", is_eligible),
        Replacement(alter_partition, "_check_members", lambda *_: None),
    ]


def _high_watermark_moves_back() -> Sequence[Replacement]:
    advance = PartitionLeader._advance_high_watermark

    def move(self: PartitionLeader, now_ms: int) -> list[Any]:
        self.high_watermark = 0
        return advance(self, now_ms)

    return [Replacement(PartitionLeader, "_advance_high_watermark", move)]


PLANTED = {
    "truncate-to-high-watermark": PlantedBug(
        "a follower of a new leader cuts its log to its high watermark, as before KIP-101",
        _truncate_to_high_watermark,
    ),
    "fetch-before-truncation": PlantedBug(
        "a follower does not say of which epoch its last record is",
        _fetch_before_truncation,
    ),
    "high-watermark-over-isr-only": PlantedBug(
        "the high watermark does not wait for who is about to join the ISR",
        _high_watermark_over_isr_only,
    ),
    "shrink-before-commit": PlantedBug(
        "the high watermark does not wait for who is proposed to leave the ISR",
        _shrink_before_commit,
    ),
    "join-below-epoch-start": PlantedBug(
        "a follower joins the ISR at the high watermark, below the start of the leader's epoch",
        _join_below_epoch_start,
    ),
    "acknowledge-under-min-isr": PlantedBug(
        "acks=all is acknowledged by fewer than min.insync.replicas",
        _acknowledge_under_min_isr,
    ),
    "no-partition-epoch": PlantedBug(
        "the controller takes an ISR that was proposed for an older partition epoch",
        _no_partition_epoch,
    ),
    "stale-broker-epoch": PlantedBug(
        "what an earlier incarnation of a follower had counts for the present one",
        _stale_broker_epoch,
    ),
    "restarted-stays-in-isr": PlantedBug(
        "a broker that registers anew stays in the ISRs and leaderships of the incarnation before it",
        _two_incarnations,
    ),
    "crash-taken-for-clean-stop": PlantedBug(
        "a broker whose machine crashed stays eligible to lead what it may have lost",
        _crash_taken_for_clean_stop,
    ),
    "last-leader-leads-again": PlantedBug(
        "after all in sync may have lost records the last leader leads, whatever the others have",
        _last_leader_leads_again,
    ),
    "only-last-leader-awaited": PlantedBug(
        "the longest log is looked for before all are back who were in sync last",
        _only_last_leader_awaited,
    ),
    "eligible-forgotten": PlantedBug(
        "who was in sync when the ISR became too small may not lead any more", _eligible_forgotten
    ),
    "eligible-beside-enough": PlantedBug(
        "replicas stay eligible to lead while an ISR of min.insync.replicas commits without them",
        _eligible_beside_enough,
    ),
    "smaller-isr-before-metadata": PlantedBug(
        "a leader acts on a smaller ISR before it knows the min.insync.replicas it was decided under",
        _smaller_isr_before_metadata,
    ),
    "lease-ignored": PlantedBug(
        "a broker goes on leading when nothing was heard of the controller",
        _lease_ignored,
    ),
    "lease-with-old-metadata": PlantedBug(
        "a broker that was cut off leads again before it knows what was decided meanwhile",
        _lease_with_old_metadata,
    ),
    "half-an-incarnation-ends": PlantedBug(
        "a broker registers anew while it is still in ISRs by what it had before", _half_an_incarnation_ends
    ),
    "rest-forgotten": PlantedBug(
        "only the first of a fenced broker's partitions are taken from it", _rest_forgotten
    ),
    "always-unclean": PlantedBug(
        "a replica out of sync is elected where the topic does not allow it",
        _always_unclean,
    ),
    "high-watermark-at-log-end": PlantedBug(
        "a new leader takes all it has for committed",
        _high_watermark_at_log_end,
    ),
    "damage-ignored": PlantedBug(
        "recovery does not look at the CRC of what a crash has left", _damage_ignored
    ),
    "fenced-joins-isr": PlantedBug(
        "a fenced broker, or one that is another incarnation by now, joins the ISR", _fenced_joins_isr
    ),
    "high-watermark-moves-back": PlantedBug(
        "a leader counts its high watermark anew instead of keeping it", _high_watermark_moves_back
    ),
    "vote-not-persisted": PlantedBug("a voter answers before its vote is on the disk", _vote_not_persisted),
    "two-votes-in-an-epoch": PlantedBug(
        "a voter votes for every candidate of an epoch", _two_votes_in_an_epoch
    ),
    "commit-of-older-epoch": PlantedBug(
        "a driver commits records of an older epoch by counting alone (Raft, 5.4.2)", _commit_of_older_epoch
    ),
    "counted-before-fsync": PlantedBug("a voter fetches beyond what it has fsynced", _counted_before_fsync),
    "minority-commits": PlantedBug("half of the voters are enough", _minority_commits),
    "directory-id-kept": PlantedBug(
        "a voter that comes back with an empty disk counts as the voter it was", _directory_id_kept
    ),
    "damaged-voter-votes": PlantedBug(
        "a voter whose copy was cut by recovery votes by what is left of it", _damaged_voter_votes
    ),
    "acted-on-before-commit": PlantedBug(
        "a broker acts on metadata that is not committed", _acted_on_before_commit
    ),
    "snapshot-one-record-short": PlantedBug(
        "a snapshot misses the last of its records", _snapshot_one_record_short
    ),
    "sequence-unchecked": PlantedBug(
        "a producer's retry is appended once more",
        _sequence_unchecked,
    ),
    **REASSIGNMENT_BUGS,
    **BALANCING_BUGS,
    **CLEANING_BUGS,
    **COORDINATOR_BUGS,
    **MEMBER_BUGS,
    **TRANSACTION_BUGS,
    **TRANSACTION_LOG_BUGS,
    **SINK_BUGS,
}
"""By name."""
