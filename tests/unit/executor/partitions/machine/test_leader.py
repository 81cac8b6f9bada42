"""The leader's decisions, as whole effect lists."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from sparklog.executor.partitions.machine.events import (
    AdvanceHighWatermark,
    Appended,
    BrokersChanged,
    FailWaitingAppends,
    FollowerFetched,
    IsrProposalAnswered,
    LogRestarted,
    MinInsyncReplicasChanged,
    PartitionChanged,
    ProposeIsr,
    RegisteredBroker,
    Ticked,
)
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.node.metadata.schemas import LOST_DIRECTORY
from sparklog.node.storage.machine.epoch_checks import check_leader_epoch, fetch_divergence
from sparklog.protocol.errors import ErrorCode, KafkaError

LAG_MS = 1000
BROKERS = {1: RegisteredBroker(11), 2: RegisteredBroker(12), 3: RegisteredBroker(13)}


def leader(**changes: Any) -> PartitionLeader:
    """Broker 1 leads in epoch 5 from offset 10, with 2 and 3 in sync, the high watermark at 10."""
    given: dict[str, Any] = {
        "broker_id": 1,
        "leader_epoch": 5,
        "partition_epoch": 7,
        "replicas": (1, 2, 3),
        "isr": frozenset({1, 2, 3}),
        "leader_epoch_start_offset": 10,
        "high_watermark": 10,
        "min_insync_replicas": 2,
        "replica_lag_time_max_ms": LAG_MS,
        "brokers": BROKERS,
        "own_broker_epoch": 11,
        "started_ms": 0,
    }
    return PartitionLeader(**{**given, **changes})


def fetched(broker_id: int, offset: int, now_ms: int = 0, broker_epoch: int | None = None) -> FollowerFetched:
    epoch = BROKERS[broker_id].broker_epoch if broker_epoch is None else broker_epoch
    return FollowerFetched(broker_id, epoch, offset, 0, now_ms)


def proposed(partition_epoch: int, *isr: tuple[int, int | None]) -> ProposeIsr:
    return ProposeIsr(5, partition_epoch, isr)


def answered(proposal: ProposeIsr, partition_epoch: int, now_ms: int = 0) -> IsrProposalAnswered:
    isr = frozenset(broker_id for broker_id, _ in proposal.new_isr)
    return IsrProposalAnswered(proposal, ErrorCode.none, isr, 5, partition_epoch, now_ms)


def refused(proposal: ProposeIsr, error_code: ErrorCode) -> IsrProposalAnswered:
    return IsrProposalAnswered(proposal, error_code, frozenset(), 0, 0, 0)


def without(brokers: Mapping[int, RegisteredBroker], broker_id: int) -> dict[int, RegisteredBroker]:
    """`broker_id` is fenced."""
    return {**brokers, broker_id: RegisteredBroker(brokers[broker_id].broker_epoch, fenced=True)}


def test_leader_append_waits_for_every_member_of_the_isr() -> None:
    """A record is committed when the last replica in sync asks for what follows it, not before."""
    machine = leader()
    assert machine.handle(Appended(12, 0)) == []
    assert machine.handle(fetched(2, 12)) == []
    assert machine.handle(fetched(3, 11)) == [AdvanceHighWatermark(11)]
    assert machine.handle(fetched(3, 12)) == [AdvanceHighWatermark(12)]


def test_leader_alone_in_its_isr_commits_what_it_appends() -> None:
    """With one replica there is nobody to wait for."""
    machine = leader(replicas=(1,), isr=frozenset({1}))
    assert machine.handle(Appended(12, 0)) == [AdvanceHighWatermark(12)]


def test_leader_alone_in_its_isr_commits_what_it_was_started_with() -> None:
    """Nobody's fetch will tell it to, and what it acknowledged before a crash must be readable after it."""
    machine = leader(replicas=(1,), isr=frozenset({1}), high_watermark=4)
    assert machine.handle(Ticked(0)) == [AdvanceHighWatermark(10)]


def test_leader_new_in_its_epoch_commits_older_records_once_the_isr_has_them() -> None:
    """What the previous leader committed shows again without a new record, only when it is known where."""
    machine = leader(high_watermark=4)
    assert machine.high_watermark_is_behind_epoch
    assert machine.handle(fetched(2, 10)) == []
    assert machine.handle(fetched(3, 10)) == [AdvanceHighWatermark(10)]
    assert not machine.high_watermark_is_behind_epoch


def test_leader_follower_that_lost_its_tail_does_not_move_the_high_watermark_back() -> None:
    """Consumers have read up to it."""
    machine = leader()
    machine.handle(Appended(12, 0))
    machine.handle(fetched(2, 12))
    assert machine.handle(fetched(3, 12)) == [AdvanceHighWatermark(12)]
    assert machine.handle(fetched(3, 4)) == []
    assert machine.high_watermark == 12


def test_isr_of_a_follower_that_stalls_and_returns_shrinks_and_grows() -> None:
    """The ISR story step by step: stall, shrink, commit without it, catch up, grow, wait for it again."""
    machine = leader()
    machine.handle(fetched(2, 10, 50))
    machine.handle(fetched(3, 10, 50))
    assert machine.handle(Appended(12, 100)) == []
    assert machine.handle(fetched(2, 12, 110)) == []
    # Broker 3 last had everything at the append; it is given the whole lag time from then on.
    assert machine.handle(Ticked(100 + LAG_MS)) == []
    shrink = proposed(7, (1, 11), (2, 12))
    assert machine.handle(Ticked(101 + LAG_MS)) == [shrink]
    # Nothing is committed on the strength of a proposal.
    assert machine.maximal_isr == {1, 2, 3}
    assert machine.handle(fetched(2, 12, 1200)) == []
    assert machine.handle(answered(shrink, 8, 1300)) == []
    smaller = PartitionChanged(8, (1, 2, 3), frozenset({1, 2}), machine.min_insync_replicas, 1301)
    assert machine.handle(smaller) == [AdvanceHighWatermark(12)]
    assert (machine.isr, machine.partition_epoch) == ({1, 2}, 8)
    # It is back, but behind: it must reach the high watermark first.
    assert machine.handle(fetched(3, 10, 5000)) == []
    grow = proposed(8, (1, 11), (2, 12), (3, 13))
    assert machine.handle(fetched(3, 12, 5100)) == [grow]
    # A joiner counts from the proposal on: the controller may have committed it already.
    assert machine.maximal_isr == {1, 2, 3}
    assert machine.isr == {1, 2}
    assert machine.handle(Appended(13, 5200)) == []
    assert machine.handle(fetched(2, 13, 5210)) == []
    assert machine.handle(answered(grow, 9, 5300)) == []
    assert machine.handle(fetched(3, 13, 5400)) == [AdvanceHighWatermark(13)]


def test_isr_follower_that_reads_steadily_behind_the_end_stays_in_sync() -> None:
    """Under constant appends no fetch ever sees the very end; having what there was last time is enough."""
    machine = leader(replicas=(1, 2), isr=frozenset({1, 2}))
    end = 10
    for now_ms in range(0, 10 * LAG_MS, LAG_MS // 2):
        machine.handle(fetched(2, end, now_ms))
        end += 5
        machine.handle(Appended(end, now_ms + 1))
        assert machine.handle(Ticked(now_ms + 2)) == []


def test_isr_of_an_idle_partition_keeps_followers_that_have_everything() -> None:
    """They need not fetch to prove it, and are given their time once something is appended."""
    machine = leader()
    machine.handle(fetched(2, 10, 0))
    machine.handle(fetched(3, 10, 0))
    assert machine.handle(Ticked(100 * LAG_MS)) == []
    machine.handle(Appended(11, 100 * LAG_MS))
    assert machine.handle(Ticked(101 * LAG_MS)) == []
    assert machine.handle(Ticked(101 * LAG_MS + 1)) == [proposed(7, (1, 11))]


def test_isr_member_that_never_fetches_is_removed_after_the_lag_time() -> None:
    """A new leader waits for the members it was elected with, but not for ever."""
    machine = leader()
    machine.handle(fetched(2, 10, 900))
    assert machine.handle(Ticked(LAG_MS)) == []
    assert machine.handle(Ticked(LAG_MS + 1)) == [proposed(7, (1, 11), (2, 12))]


def test_isr_joiner_must_have_reached_the_start_of_the_leader_epoch() -> None:
    """Records between high watermark and epoch start may be committed; a member without them could lead."""
    machine = leader(isr=frozenset({1, 2}), high_watermark=4)
    assert machine.handle(fetched(3, 6)) == []
    assert machine.handle(fetched(3, 10)) == [proposed(7, (1, 11), (2, None), (3, 13))]


def test_isr_joiner_that_is_fenced_is_not_proposed_until_it_is_not() -> None:
    """The metadata has the last word, and an idle follower will not ask again by itself."""
    machine = leader(isr=frozenset({1, 2}), brokers=without(BROKERS, 3))
    assert machine.handle(fetched(3, 10)) == []
    assert machine.handle(BrokersChanged(BROKERS, 5)) == [proposed(7, (1, 11), (2, None), (3, 13))]


def test_isr_joiner_under_a_broker_epoch_not_yet_known_is_not_proposed() -> None:
    """A restarted broker joins as the incarnation that the metadata knows (KIP-903)."""
    machine = leader(isr=frozenset({1, 2}))
    assert machine.handle(fetched(3, 10, broker_epoch=14)) == []
    brokers = {**BROKERS, 3: RegisteredBroker(14)}
    assert machine.handle(BrokersChanged(brokers, 5)) == [proposed(7, (1, 11), (2, None), (3, 14))]


def test_fetch_of_an_earlier_incarnation_is_refused_and_counts_for_nothing() -> None:
    """A zombie's fetch says nothing about the disk of the broker that replaced it (KIP-903)."""
    machine = leader()
    machine.handle(Appended(12, 0))
    machine.handle(fetched(2, 12))
    with pytest.raises(KafkaError) as raised:
        machine.handle(fetched(3, 12, broker_epoch=9))
    assert raised.value.error_code is ErrorCode.not_leader_or_follower
    assert machine.high_watermark == 10


def test_fetch_of_a_broker_that_is_no_replica_is_refused_as_unknown_epoch() -> None:
    """One of the two has newer metadata; the follower is to try again."""
    machine = leader(replicas=(1, 2), isr=frozenset({1, 2}))
    with pytest.raises(KafkaError) as raised:
        machine.handle(fetched(3, 10))
    assert raised.value.error_code is ErrorCode.unknown_leader_epoch


def test_proposal_under_way_is_not_joined_by_another() -> None:
    """One change at a time: the second would name a partition epoch that the first makes stale."""
    machine = leader(isr=frozenset({1}), min_insync_replicas=1)
    first = proposed(7, (1, 11), (2, 12))
    assert machine.handle(fetched(2, 10)) == [first]
    assert machine.handle(fetched(3, 10)) == []
    # Broker 3 will not ask again while nothing is appended, so it is proposed by itself afterwards.
    assert machine.handle(answered(first, 8)) == [proposed(8, (1, 11), (2, 12), (3, 13))]


def test_proposal_refused_for_good_is_taken_back() -> None:
    """INELIGIBLE_REPLICA says that no controller has applied it or ever will; waiting for it would hang."""
    machine = leader(isr=frozenset({1}), min_insync_replicas=1)
    proposal = proposed(7, (1, 11), (2, 12))
    assert machine.handle(fetched(2, 10)) == [proposal]
    assert machine.handle(Appended(11, 1)) == []
    machine.handle(BrokersChanged(without(BROKERS, 2), 2))
    assert machine.handle(refused(proposal, ErrorCode.ineligible_replica)) == [AdvanceHighWatermark(11)]
    assert machine.maximal_isr == {1}


@pytest.mark.parametrize(
    "error_code",
    [ErrorCode.fenced_leader_epoch, ErrorCode.invalid_update_version, ErrorCode.new_leader_elected],
)
def test_proposal_refused_as_stale_stays_pending_until_metadata(error_code: ErrorCode) -> None:
    """The leader is behind; the strict side is to count the joiner until it knows."""
    machine = leader(isr=frozenset({1, 2}))
    machine.handle(fetched(2, 10))
    proposal = proposed(7, (1, 11), (2, 12), (3, 13))
    assert machine.handle(fetched(3, 10)) == [proposal]
    assert machine.handle(refused(proposal, error_code)) == []
    assert machine.handle(Ticked(1)) == []
    assert machine.maximal_isr == {1, 2, 3}
    machine.handle(PartitionChanged(8, (1, 2, 3), frozenset({1, 2, 3}), machine.min_insync_replicas, 2))
    assert machine.isr == {1, 2, 3}


def test_proposal_whose_answer_was_lost_is_sent_again_at_the_next_tick() -> None:
    """It may have been committed or not; asking again finds out, and must not spin."""
    machine = leader(isr=frozenset({1, 2}))
    proposal = proposed(7, (1, 11), (2, None), (3, 13))
    assert machine.handle(fetched(3, 10)) == [proposal]
    assert machine.handle(refused(proposal, ErrorCode.network_exception)) == []
    assert machine.wants_tick
    assert machine.handle(Ticked(1)) == [proposal]
    assert machine.handle(Ticked(2)) == []


def test_metadata_of_the_partition_epoch_known_already_does_not_drop_what_is_pending() -> None:
    """The log tells again what the answer told; a joiner proposed since may be committed at this moment."""
    machine = leader(isr=frozenset({1}), min_insync_replicas=1)
    first = proposed(7, (1, 11), (2, 12))
    machine.handle(fetched(2, 10))
    machine.handle(answered(first, 8))
    assert machine.handle(fetched(3, 10)) == [proposed(8, (1, 11), (2, 12), (3, 13))]
    assert (
        machine.handle(PartitionChanged(8, (1, 2, 3), frozenset({1, 2}), machine.min_insync_replicas, 1))
        == []
    )
    assert machine.maximal_isr == {1, 2, 3}


def test_answer_overtaken_by_metadata_is_ignored() -> None:
    """Partition epochs order the two ways in which a leader learns of its ISR."""
    machine = leader(isr=frozenset({1, 2}))
    machine.handle(fetched(2, 10))
    proposal = proposed(7, (1, 11), (2, 12), (3, 13))
    assert machine.handle(fetched(3, 10)) == [proposal]
    machine.handle(PartitionChanged(9, (1, 2, 3), frozenset({1}), machine.min_insync_replicas, 1))
    assert machine.handle(answered(proposal, 8)) == []
    assert (machine.isr, machine.partition_epoch) == ({1}, 9)


def test_isr_below_min_insync_replicas_tells_who_waits_and_commits_nothing() -> None:
    """Acknowledged only by a full ISR of at least min.insync.replicas; who waits may try again elsewhere."""
    machine = leader()
    machine.handle(Appended(12, 0))
    assert machine.handle(PartitionChanged(8, (1, 2, 3), frozenset({1}), machine.min_insync_replicas, 1)) == [
        FailWaitingAppends(frozenset({1}), 2)
    ]
    assert machine.is_under_min_isr
    assert machine.handle(Appended(13, 2)) == []
    machine.handle(MinInsyncReplicasChanged(1, 3))
    assert machine.high_watermark == 13


def test_smaller_isr_counts_only_when_the_metadata_says_so_too() -> None:
    """A min.insync.replicas that grew before makes who left eligible; the answer does not say so."""
    machine = leader(replicas=(1, 2), isr=frozenset({1, 2}), min_insync_replicas=1)
    machine.handle(Appended(12, 0))
    shrink = proposed(7, (1, 11))
    assert machine.handle(Ticked(LAG_MS + 1)) == [shrink]
    assert machine.handle(answered(shrink, 8, 1300)) == []
    # The metadata log brings what the controller knew, in order.
    assert machine.handle(MinInsyncReplicasChanged(2, 1301)) == []
    told = FailWaitingAppends(frozenset({1}), 2)
    assert machine.handle(PartitionChanged(8, (1, 2), frozenset({1}), machine.min_insync_replicas, 1301)) == [
        told
    ]
    assert machine.high_watermark == 10


def test_min_insync_replicas_above_the_replica_count_means_all_replicas() -> None:
    """A topic of one replica stays usable under a cluster default of two."""
    machine = leader(replicas=(1,), isr=frozenset({1}), min_insync_replicas=2)
    assert not machine.is_under_min_isr


def test_high_watermark_waits_for_who_is_about_to_join() -> None:
    """A follower that keeps up would otherwise run after the end for ever and never join."""
    machine = leader(isr=frozenset({1, 2}), brokers=without(BROKERS, 3))
    machine.handle(fetched(2, 10))
    machine.handle(fetched(3, 10))
    machine.handle(BrokersChanged(BROKERS, 1))
    machine.handle(Appended(11, 2))
    assert machine.handle(fetched(2, 11, 3)) == []
    assert machine.handle(fetched(3, 11, 4)) == [AdvanceHighWatermark(11)]


@pytest.mark.parametrize("told_by", ["the broker has one directory less", "the replica is said to be lost"])
def test_follower_whose_directory_failed_joins_and_is_waited_for_only_when_it_has_fetched_again(
    told_by: str,
) -> None:
    """What it had fetched is gone. Leader and controller would add it and take it out again in turns."""
    failed, left = UUID(int=1001), UUID(int=1002)
    brokers = {**BROKERS, 3: RegisteredBroker(13, log_directories=(failed, left))}
    machine = leader(brokers=brokers, directories=(None, None, failed))
    machine.handle(fetched(2, 10))
    machine.handle(fetched(3, 10))
    machine.handle(Appended(12, 1))
    assert machine.handle(fetched(2, 12, 2)) == []
    lies_in: UUID | None = failed
    if told_by == "the broker has one directory less":
        brokers = {**BROKERS, 3: RegisteredBroker(13, log_directories=(left,))}
        assert machine.handle(BrokersChanged(brokers, 3)) == []
    else:
        lies_in = LOST_DIRECTORY

    def changed(partition_epoch: int, directory: UUID | None) -> PartitionChanged:
        return PartitionChanged(
            partition_epoch, (1, 2, 3), frozenset({1, 2}), 2, partition_epoch, (None, None, directory)
        )

    assert machine.handle(changed(8, lies_in)) == [AdvanceHighWatermark(12)]
    assert machine.handle(changed(9, left)) == []
    assert machine.handle(Ticked(10)) == []
    assert machine.handle(fetched(3, 12, 11)) == [proposed(9, (1, 11), (2, 12), (3, 13))]


def test_low_watermark_is_the_least_of_live_replicas_and_unknown_until_heard_of() -> None:
    """DeleteRecords answers when the records are gone everywhere they can be read from."""
    machine = leader()
    machine.handle(FollowerFetched(2, 12, 10, 6, 0))
    assert machine.low_watermark(8) is None
    machine.handle(FollowerFetched(3, 13, 10, 7, 0))
    assert machine.low_watermark(8) == 6
    machine.handle(BrokersChanged({1: BROKERS[1], 3: BROKERS[3]}, 1))
    assert machine.low_watermark(8) == 7
    machine.handle(BrokersChanged(without(BROKERS, 3), 2))
    assert machine.low_watermark(8) == 6
    leaving = {
        **BROKERS,
        2: RegisteredBroker(12, fenced=True),
        3: RegisteredBroker(13, in_controlled_shutdown=True),
    }
    machine.handle(BrokersChanged(leaving, 3))
    assert machine.low_watermark(8) == 7, "who is shutting down still serves and is waited for"


class History:
    """Epoch 2 from 0, epoch 4 from 20, the end at 30."""

    def end_offset_for(self, leader_epoch: int) -> tuple[int, int] | None:
        if leader_epoch >= 4:
            return 4, 30
        return (2, 20) if leader_epoch >= 2 else (leader_epoch, 0)


@pytest.mark.parametrize(
    ("last_fetched_epoch", "fetch_offset", "expected"),
    [
        (None, 0, None),
        (4, 30, None),
        (4, 25, None),
        (2, 20, None),
        (2, 21, (2, 20)),
        (3, 10, (2, 20)),
        (5, 30, (4, 30)),
        (4, 31, (4, 30)),
    ],
)
def test_divergence_of_a_reader_is_found_by_its_last_epoch(
    last_fetched_epoch: int | None, fetch_offset: int, expected: tuple[int, int] | None
) -> None:
    """A log is a prefix exactly when its last epoch is known here and does not end before it (KIP-595)."""
    assert fetch_divergence(History(), last_fetched_epoch, fetch_offset, 0, 30) == expected


def test_divergence_below_the_log_start_is_out_of_range() -> None:
    """There is nothing left to compare."""
    with pytest.raises(KafkaError) as raised:
        fetch_divergence(History(), 2, 5, log_start_offset=6, log_end_offset=30)
    assert raised.value.error_code is ErrorCode.offset_out_of_range


@pytest.mark.parametrize(
    ("requested", "error_code"), [(4, ErrorCode.fenced_leader_epoch), (6, ErrorCode.unknown_leader_epoch)]
)
def test_leader_epoch_of_another_leadership_is_refused(requested: int, error_code: ErrorCode) -> None:
    """The older party is told apart from the one that is ahead (KIP-320)."""
    check_leader_epoch(None, 5)
    check_leader_epoch(5, 5)
    with pytest.raises(KafkaError) as raised:
        check_leader_epoch(requested, 5)
    assert raised.value.error_code is error_code


def test_min_isr_of_a_partition_that_is_moved_is_that_of_the_replicas_it_had() -> None:
    """With one replica each, a topic would take nothing while it is copied to another broker."""
    machine = leader(replicas=(1,), isr=frozenset({1}))
    machine.handle(PartitionChanged(8, (2, 1), frozenset({1}), 2, 0, adding_replicas=(2,)))
    assert not machine.is_under_min_isr
    assert machine.handle(Appended(12, 0)) == [AdvanceHighWatermark(12)]
    machine.handle(PartitionChanged(9, (2, 1), frozenset({1}), 2, 0))
    assert machine.is_under_min_isr, "they are here to stay now"


def test_min_isr_of_a_new_leader_in_a_partition_that_is_moved_is_that_of_the_replicas_it_had() -> None:
    """Whoever leads while it goes on, the answer must be the same."""
    machine = leader(replicas=(2, 1), isr=frozenset({1}), adding_replicas=(2,))
    assert machine.effective_min_insync_replicas == 1


def test_follower_that_is_removed_counts_no_more_and_is_told_so() -> None:
    """It may go on asking until it has heard of it."""
    machine = leader()
    machine.handle(fetched(3, 12))
    machine.handle(PartitionChanged(8, (1, 2), frozenset({1, 2}), 2, 0))
    machine.handle(Appended(12, 0))
    assert machine.handle(fetched(2, 12)) == [AdvanceHighWatermark(12)]
    with pytest.raises(KafkaError) as raised:
        machine.handle(fetched(3, 12))
    assert raised.value.error_code is ErrorCode.unknown_leader_epoch


def test_leader_whose_log_restarts_at_the_tiers_end_waits_for_no_follower() -> None:
    """A tier has only committed records; followers with empty disks would else hold up all readers."""
    machine = leader()
    assert machine.handle(LogRestarted(500, 0)) == [AdvanceHighWatermark(500)]
    assert (machine.log_end_offset, machine.leader_epoch_start_offset) == (500, 500)
    assert not machine.high_watermark_is_behind_epoch
    # What is appended afterwards is committed as ever, by all of the ISR.
    assert machine.handle(Appended(510, 1)) == []
    machine.handle(fetched(2, 510))
    assert machine.handle(fetched(3, 510)) == [AdvanceHighWatermark(510)]


def test_leader_whose_log_restarts_below_its_high_watermark_commits_from_there() -> None:
    """After unclean elections the tier's history may be the newer one, and the shorter."""
    machine = leader(leader_epoch_start_offset=1000, high_watermark=1000)
    machine.handle(fetched(2, 1000))
    machine.handle(fetched(3, 1000))
    assert machine.handle(LogRestarted(350, 0)) == [AdvanceHighWatermark(350)]
    assert (machine.high_watermark, machine.log_end_offset, machine.leader_epoch_start_offset) == (350,) * 3
    # What followers had of the former log is no evidence of these records.
    assert machine.handle(Appended(360, 1)) == []
    machine.handle(fetched(2, 360, 2))
    assert machine.handle(fetched(3, 360, 2)) == [AdvanceHighWatermark(360)]
