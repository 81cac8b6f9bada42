"""How a driver becomes the leader, effect by effect."""

from uuid import UUID

import pytest

from sparklog.driver.controller.quorum.machine.candidate import (
    RETRY_MS,
    AnnouncedBroker,
    AskLogEnd,
    AskVote,
    BecomeLeader,
    BeginAtStored,
    Candidate,
    CopyLog,
    Effect,
    ExpectedBroker,
    ForeignClusterError,
    RefuseDirectories,
    StoredLog,
    first_voters,
)
from sparklog.node.metadata_log.machine.log_position import EMPTY_LOG, LogPosition
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet

EXPECTED = [ExpectedBroker(node_id, f"rack-{node_id}") for node_id in range(3)]
CLUSTER = "cluster"
NEW_CLUSTER = "new-cluster"


def key(node_id: int, directory: int = 0) -> VoterKey:
    return VoterKey(node_id, UUID(int=1000 + 100 * directory + node_id))


def broker(node_id: int, cluster_id: str | None = CLUSTER, directory: int = 0) -> AnnouncedBroker:
    return AnnouncedBroker(key(node_id, directory), cluster_id, f"host-{node_id}", 9000 + node_id)


VOTERS = VoterSet.of(Voter(key(node_id), f"host-{node_id}", 9000 + node_id) for node_id in range(3))


def candidate() -> Candidate:
    return Candidate(EXPECTED, NEW_CLUSTER)


def ask(node_id: int, leader_epoch: int, position: LogPosition, *, pre_vote: bool) -> AskVote:
    return AskVote(key(node_id), leader_epoch, position, pre_vote)


def test_new_cluster_is_formed_when_all_brokers_are_blank_and_all_vote() -> None:
    """The first voters must all promise: nothing else says later that they are the voters."""
    machine = candidate()
    for node_id in range(3):
        assert machine.broker_announced(broker(node_id, None), 0) == [AskLogEnd(key(node_id))]
    assert machine.log_end_answered(key(0), EMPTY_LOG, 0) == []
    assert machine.log_end_answered(key(1), EMPTY_LOG, 0) == []
    pre_votes = [ask(node_id, 1, EMPTY_LOG, pre_vote=True) for node_id in range(3)]
    assert machine.log_end_answered(key(2), EMPTY_LOG, 0) == pre_votes
    assert machine.cluster_id == NEW_CLUSTER
    votes = [ask(node_id, 1, EMPTY_LOG, pre_vote=False) for node_id in range(3)]
    effects = [machine.vote_answered(each.key, each, 0, granted=True, now_ms=0) for each in pre_votes]
    assert effects == [[], [], votes]
    effects = [machine.vote_answered(each.key, each, 1, granted=True, now_ms=0) for each in votes]
    assert effects == [[], [], [BecomeLeader(1, VOTERS, VOTERS.keys, forms_cluster=True)]]


def test_new_cluster_is_not_formed_while_a_broker_has_not_come() -> None:
    """The missing broker's directory may hold the cluster that a new one would shut out."""
    machine = candidate()
    for node_id in range(2):
        machine.broker_announced(broker(node_id, None), 0)
        assert machine.log_end_answered(key(node_id), EMPTY_LOG, 0) == []
    assert machine.tick(10_000) == []
    assert machine.missing() == (
        "a new cluster is formed only when all brokers have come, and none of them has a log: "
        "waiting for broker 2 of rack-2"
    )


def test_recovery_copies_the_longest_log_and_stands_with_it() -> None:
    """What a majority has on disk is in the longest copy of any majority."""
    machine = candidate()
    ends = {0: LogPosition(4, 90), 1: LogPosition(5, 70)}
    for node_id in ends:
        machine.broker_announced(broker(node_id), 0)
    assert machine.log_end_answered(key(0), ends[0], 0) == []
    assert machine.log_end_answered(key(1), ends[1], 0) == [CopyLog(key(1))]
    assert machine.log_copied(key(1), ends[1], VOTERS, 0) == [
        ask(0, 6, ends[1], pre_vote=True),
        ask(1, 6, ends[1], pre_vote=True),
    ]
    machine.vote_answered(key(0), ask(0, 6, ends[1], pre_vote=True), 5, granted=True, now_ms=0)
    votes = machine.vote_answered(key(1), ask(1, 6, ends[1], pre_vote=True), 5, granted=True, now_ms=0)
    assert votes == [ask(0, 6, ends[1], pre_vote=False), ask(1, 6, ends[1], pre_vote=False)]
    machine.vote_answered(key(0), ask(0, 6, ends[1], pre_vote=False), 6, granted=True, now_ms=0)
    won = machine.vote_answered(key(1), ask(1, 6, ends[1], pre_vote=False), 6, granted=True, now_ms=0)
    assert won == [BecomeLeader(6, VOTERS, frozenset({key(0), key(1)}), forms_cluster=False)]


def test_recovery_waits_for_a_majority_of_the_voters_directories_and_names_the_missing() -> None:
    """New directories of the same brokers have forgotten everything; they are no majority."""
    machine = candidate()
    end = LogPosition(4, 90)
    machine.broker_announced(broker(0), 0)
    for node_id in (1, 2):
        machine.broker_announced(broker(node_id, None, directory=1), 0)
        machine.log_end_answered(key(node_id, directory=1), EMPTY_LOG, 0)
    assert machine.log_end_answered(key(0), end, 0) == [CopyLog(key(0))]
    assert machine.missing_voters == ()
    assert machine.log_copied(key(0), end, VOTERS, 0) == []
    assert machine.missing_voters == (1, 2)
    assert machine.missing() == (
        f"cluster {CLUSTER} needs 1 more of its voters' directories: "
        f"that of broker 1, last on host host-1 (directory id {key(1).directory_id}); "
        f"that of broker 2, last on host host-2 (directory id {key(2).directory_id})"
    )


def test_refused_vote_is_followed_by_a_new_look_at_the_logs_and_a_higher_epoch() -> None:
    """An old leader may have written on meanwhile; whoever refused has a longer log or a higher epoch."""
    machine = candidate()
    end = LogPosition(4, 90)
    for node_id in (0, 1):
        machine.broker_announced(broker(node_id), 0)
    for node_id in (0, 1):
        machine.log_end_answered(key(node_id), end, 0)
    machine.log_copied(key(1), end, VOTERS, 0)
    for node_id in (0, 1):
        machine.vote_answered(key(node_id), ask(node_id, 5, end, pre_vote=True), 4, granted=True, now_ms=0)
    machine.vote_answered(key(0), ask(0, 5, end, pre_vote=False), 5, granted=True, now_ms=0)
    assert machine.vote_answered(key(1), ask(1, 5, end, pre_vote=False), 9, granted=False, now_ms=100) == [
        AskLogEnd(key(0)),
        AskLogEnd(key(1)),
    ]
    longer = LogPosition(4, 93)
    machine.log_end_answered(key(0), end, 100)
    assert machine.log_end_answered(key(1), longer, 100) == []
    assert machine.tick(100 + RETRY_MS) == [CopyLog(key(1))]
    assert machine.log_copied(key(1), longer, VOTERS, 200) == [
        ask(0, 10, longer, pre_vote=True),
        ask(1, 10, longer, pre_vote=True),
    ]


def test_broker_that_does_not_answer_is_left_out_until_it_calls_again() -> None:
    """One hanging broker must not keep a majority from starting."""
    machine = candidate()
    end = LogPosition(1, 5)
    for node_id in range(3):
        machine.broker_announced(broker(node_id), 0)
    machine.log_end_answered(key(0), end, 0)
    machine.log_end_answered(key(1), end, 0)
    assert machine.lost(key(2), 0) == [CopyLog(key(1))]
    assert machine.broker_announced(broker(2), 0) == [AskLogEnd(key(2))]


def test_copy_whose_source_has_gone_is_waited_for_and_stands_for_what_it_is() -> None:
    """An answer on its way may still change the own log: a vote asked for meanwhile would be for another one.

    The simulator found two copies being made at once, into one log.
    """
    machine = candidate()
    ends = [LogPosition(1, 5), LogPosition(2, 6), LogPosition(1, 5)]
    for node_id in range(3):
        machine.broker_announced(broker(node_id), 0)
    for node_id in range(2):
        machine.log_end_answered(key(node_id), ends[node_id], 0)
    assert machine.log_end_answered(key(2), ends[2], 0) == [CopyLog(key(1))]
    assert machine.lost(key(1), 0) == []
    assert machine.copy_failed(key(1), LogPosition(1, 3), VOTERS, 0) == [CopyLog(key(2))]


def test_broker_of_another_cluster_is_refused_by_name() -> None:
    """Two clusters' directories in one application are a mistake of the configuration."""
    machine = candidate()
    machine.broker_announced(broker(0), 0)
    with pytest.raises(ForeignClusterError, match="broker 1 on host-1 belong to cluster other"):
        machine.broker_announced(broker(1, "other"), 0)


@pytest.mark.parametrize(
    "racks, voters", [(1, (0,)), (2, (0,)), (3, (0, 1, 2)), (4, (0, 1, 2)), (5, (0, 1, 2, 3, 4))]
)
def test_first_voters_are_one_in_each_rack_and_odd_in_number(racks: int, voters: tuple[int, ...]) -> None:
    """An even number survives no more failures than one less."""
    assert first_voters(ExpectedBroker(node_id, f"rack-{node_id}") for node_id in range(racks)) == voters


def test_broker_that_was_silent_once_is_known_to_whoever_leads() -> None:
    """It may live, and says no more who it is where it hears from a leader; who leads may have to ask it."""
    machine = candidate()
    end = LogPosition(4, 90)
    for node_id in range(3):
        machine.broker_announced(broker(node_id), 0)
        machine.log_end_answered(key(node_id), end, 0)
    machine.lost(key(2), 0)
    assert {each.key for each in machine.announced_brokers} == {key(0), key(1), key(2)}
    assert machine.announced_broker(key(2)) is None
    elsewhere = broker(2)._replace(port=9999)
    machine.broker_announced(elsewhere, 0)
    assert [each for each in machine.announced_brokers if each.key == key(2)] == [elsewhere]


STORED = StoredLog(CLUSTER, LogPosition(5, 80), "s3://bucket/prefix")


def awaiting() -> Candidate:
    return Candidate(EXPECTED, NEW_CLUSTER, awaits_store=True)


def announced(
    machine: Candidate, ends: dict[int, LogPosition], cluster_id: str | None = None
) -> list[Effect]:
    """Let brokers announce themselves with logs that end there; return the last effects."""
    effects: list[Effect] = []
    for node_id in ends:
        machine.broker_announced(broker(node_id, cluster_id), 0)
    for node_id, end in ends.items():
        effects = machine.log_end_answered(key(node_id), end, 0)
    return effects


def test_cluster_in_the_store_begins_from_there_when_all_brokers_are_blank() -> None:
    """The bucket is enough: the cluster keeps its id, and brokers fetch its metadata as a snapshot."""
    machine = awaiting()
    assert announced(machine, dict.fromkeys(range(3), EMPTY_LOG)) == []
    assert machine.store_read(STORED, 0) == [BeginAtStored()]
    assert machine.cluster_id == CLUSTER
    assert machine.tick(0) == []
    restored = LogPosition(6, 81)
    pre_votes = [ask(node_id, 7, restored, pre_vote=True) for node_id in range(3)]
    assert machine.began_at_stored(restored, 0) == pre_votes
    for each in pre_votes:
        effects = machine.vote_answered(each.key, each, 0, granted=True, now_ms=0)
    for each in [ask(node_id, 7, restored, pre_vote=False) for node_id in range(3)]:
        effects = machine.vote_answered(each.key, each, 7, granted=True, now_ms=0)
    assert effects == [BecomeLeader(7, VOTERS, VOTERS.keys, forms_cluster=True)]


def test_cluster_in_the_store_waits_for_every_broker() -> None:
    """The broker that is missing may have the newer directory."""
    machine = awaiting()
    announced(machine, dict.fromkeys(range(2), EMPTY_LOG))
    assert machine.store_read(STORED, 0) == []
    assert machine.tick(10_000) == []


def test_empty_store_forms_a_new_cluster() -> None:
    """The first start with a prefix."""
    machine = awaiting()
    announced(machine, dict.fromkeys(range(3), EMPTY_LOG))
    assert machine.store_read(None, 0) == [ask(each, 1, EMPTY_LOG, pre_vote=True) for each in range(3)]
    assert machine.cluster_id == NEW_CLUSTER


def test_directories_with_a_majority_win_over_the_store() -> None:
    """The stored snapshot lags behind them by a second or so."""
    machine = awaiting()
    ahead = LogPosition(5, 95)
    announced(machine, {0: ahead, 1: ahead}, CLUSTER)
    assert machine.store_read(STORED, 0) == [CopyLog(key(1))]
    asked = [ask(node_id, 6, ahead, pre_vote=True) for node_id in range(2)]
    assert machine.log_copied(key(1), ahead, VOTERS, 0) == asked


def test_directories_behind_the_store_are_refused() -> None:
    """Another application has gone on with the cluster: these would undo what it did."""
    machine = awaiting()
    behind = LogPosition(4, 200)
    announced(machine, {0: behind, 1: behind}, CLUSTER)
    machine.store_read(STORED, 0)
    (refusal,) = machine.log_copied(key(1), behind, VOTERS, 0)
    assert isinstance(refusal, RefuseDirectories)
    assert (
        "up to metadata offset 200 in leader epoch 4, and s3://bucket/prefix up to 80 in 5" in refusal.reason
    )
    assert machine.tick(10_000) == []


def test_directories_of_another_cluster_than_the_stores_are_refused() -> None:
    """Whichever is known first."""
    machine = awaiting()
    announced(machine, {0: LogPosition(1, 5)}, "elsewhere")
    (refusal,) = machine.store_read(STORED, 0)
    assert isinstance(refusal, RefuseDirectories) and "belong to cluster elsewhere" in refusal.reason
    other = awaiting()
    other.store_read(STORED, 0)
    with pytest.raises(ForeignClusterError, match=r"sparklog\.remote\.uri"):
        other.broker_announced(broker(0, "elsewhere"), 0)


def test_directories_without_a_majority_are_named_with_the_way_out() -> None:
    """They may be the newer ones, so only the user can give them up for the store."""
    machine = awaiting()
    announced(machine, {0: LogPosition(5, 95)}, CLUSTER)
    machine.store_read(STORED, 0)
    machine.log_copied(key(0), LogPosition(5, 95), VOTERS, 0)
    assert machine.tick(10_000) == []
    missing = machine.missing()
    assert missing is not None and missing.endswith(
        "s3://bucket/prefix has the cluster, too: it begins from there once the directories that are left "
        "are removed, those of broker 0 on host-0"
    )
