"""The leader of the metadata log: commitment, majority, and changes of the voters."""

from uuid import UUID

from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet

FETCH_TIMEOUT_MS = 2000
EPOCH_START = 10


def key(node_id: int, directory: int = 0) -> VoterKey:
    return VoterKey(node_id, UUID(int=1000 + 100 * directory + node_id))


def broker(node_id: int, directory: int = 0) -> AnnouncedBroker:
    return AnnouncedBroker(key(node_id, directory), "cluster", f"host-{node_id}", 9000)


def voters(*keys: VoterKey) -> VoterSet:
    return VoterSet.of(Voter(each, f"host-{each.node_id}", 9000) for each in keys)


def leader() -> QuorumLeader:
    return QuorumLeader(
        3,
        voters(key(0), key(1), key(2)),
        EPOCH_START,
        wanted_voters=(0, 1, 2),
        fetch_timeout_ms=FETCH_TIMEOUT_MS,
        now_ms=0,
    )


def test_high_watermark_waits_for_a_majority_and_for_a_record_of_the_own_epoch() -> None:
    """An earlier leader's records on a majority may still be replaced (Raft, figure 8)."""
    machine = leader()
    assert not machine.fetched(key(0), EPOCH_START, EPOCH_START + 1, 0)
    assert not machine.fetched(key(1), EPOCH_START, EPOCH_START + 1, 0)
    assert machine.high_watermark == 0
    assert not machine.fetched(key(0), EPOCH_START + 1, EPOCH_START + 1, 0)
    assert machine.fetched(key(1), EPOCH_START + 1, EPOCH_START + 1, 0)
    assert machine.high_watermark == EPOCH_START + 1


def test_high_watermark_does_not_count_observers() -> None:
    """A broker with a new directory is not the voter it was."""
    machine = leader()
    machine.fetched(key(0), EPOCH_START + 5, EPOCH_START + 5, 0)
    for stranger in (key(1, directory=1), key(2, directory=1), key(3)):
        assert not machine.fetched(stranger, EPOCH_START + 5, EPOCH_START + 5, 0)
    assert machine.high_watermark == 0


def test_leader_without_fetches_of_a_majority_knows_that_it_may_be_replaced() -> None:
    """It must not renew leases while a successor gives leaderships away."""
    machine = leader()
    assert machine.has_majority(FETCH_TIMEOUT_MS - 1)
    assert not machine.has_majority(FETCH_TIMEOUT_MS)
    machine.fetched(key(0), EPOCH_START, EPOCH_START + 1, 5000)
    assert not machine.has_majority(5000)
    machine.fetched(key(2), EPOCH_START, EPOCH_START + 1, 5000)
    assert machine.has_majority(5000 + FETCH_TIMEOUT_MS - 1)
    assert not machine.has_majority(5000 + FETCH_TIMEOUT_MS)


def test_lost_directory_is_replaced_by_one_removal_and_one_addition_each_committed() -> None:
    """Replacing a voter in one step could let two disjoint majorities decide (KIP-853)."""
    machine = leader()
    end = EPOCH_START + 1
    announced = [broker(0), broker(1), broker(2, directory=1)]
    now_ms = 10_000
    machine.fetched(key(0), end, end, now_ms)
    assert machine.next_voters(announced, now_ms) is None
    machine.fetched(key(1), end, end, now_ms)
    assert machine.next_voters(announced, now_ms) is None, "the new directory has fetched nothing yet"
    machine.fetched(key(2, directory=1), end, end, now_ms)
    smaller = machine.next_voters(announced, now_ms)
    assert smaller == voters(key(0), key(1))
    machine.voters_appended(smaller, end + 1)
    assert machine.next_voters(announced, now_ms) is None, "the first change is not committed"
    machine.fetched(key(0), end + 1, end + 1, now_ms)
    assert machine.fetched(key(1), end + 1, end + 1, now_ms)
    machine.fetched(key(2, directory=1), end + 1, end + 1, now_ms)
    larger = machine.next_voters(announced, now_ms)
    assert larger is not None
    assert larger.keys == {key(0), key(1), key(2, directory=1)}


def test_voter_that_still_fetches_is_not_replaced_by_its_own_node_id() -> None:
    """Two processes with one node id are a mistake, not a lost disk."""
    machine = leader()
    end = EPOCH_START + 1
    for each in (key(0), key(1), key(2), key(2, directory=1)):
        machine.fetched(each, end, end, 0)
    assert machine.next_voters([broker(2, directory=1)], 0) is None


def test_unwanted_voter_leaves_when_all_wanted_ones_vote_and_a_majority_without_it_is_caught_up() -> None:
    """A cluster that becomes smaller would keep votes that never come, and stop at its next lost disk."""
    machine = QuorumLeader(
        3,
        voters(*map(key, range(5))),
        EPOCH_START,
        wanted_voters=range(5),
        fetch_timeout_ms=FETCH_TIMEOUT_MS,
        now_ms=0,
    )
    announced = [broker(node_id) for node_id in range(5)]
    for node_id in range(5):
        machine.fetched(key(node_id), EPOCH_START + 1, EPOCH_START + 1, 0)
    assert machine.next_voters(announced, 0) is None
    machine.want_voters((0, 1, 5))
    assert machine.next_voters(announced, 0) is None, "a wanted one is missing"
    machine.want_voters((0, 1, 2))
    first = machine.next_voters(announced, 0)
    assert first is not None and sorted(each.node_id for each in first.keys) == [0, 1, 2, 3]
    machine.voters_appended(first, EPOCH_START + 2)
    assert machine.next_voters(announced, 0) is None, "one change at a time"
    for node_id in range(3):
        machine.fetched(key(node_id), EPOCH_START + 2, EPOCH_START + 2, 0)
    second = machine.next_voters(announced, 0)
    assert second is not None and sorted(each.node_id for each in second.keys) == [0, 1, 2]
    assert machine.next_voters(announced, FETCH_TIMEOUT_MS) is None, "no majority is caught up"


def test_unwanted_voter_beyond_an_odd_number_leaves_although_a_wanted_one_has_lost_its_vote() -> None:
    """A wanted broker may end for good between its old vote and its new one, and the drain with it."""
    present = voters(key(0), key(2), key(3), key(4))
    machine = QuorumLeader(
        3, present, EPOCH_START, wanted_voters=(0, 1, 2), fetch_timeout_ms=FETCH_TIMEOUT_MS, now_ms=0
    )
    announced = [broker(0), broker(1, directory=1), *map(broker, (2, 3, 4))]
    end = EPOCH_START + 1
    for node_id in (0, 2):
        machine.fetched(key(node_id), end, end, 0)
    assert machine.next_voters(announced, 0) is None, "two are no majority of the four, nothing is committed"
    machine.fetched(key(3), end, end, 0)
    smaller = machine.next_voters(announced, 0)
    assert smaller == voters(key(0), key(2), key(3)), "one voter may be lost before and after"
    machine.voters_appended(smaller, end + 1)
    for node_id in (0, 2, 3):
        machine.fetched(key(node_id), end + 1, end + 1, 0)
    assert machine.next_voters(announced, 0) is None, "each of the three may be the one that is needed"
    machine.fetched(key(1, directory=1), end + 1, end + 1, 0)
    larger = machine.next_voters(announced, 0)
    assert larger == voters(key(0), key(1, directory=1), key(2), key(3))


def test_broker_that_is_about_to_end_gets_no_vote() -> None:
    """A size that was raised again wants it, while its job ends: one voter of two could commit nothing."""
    machine = QuorumLeader(
        3, voters(key(0)), EPOCH_START, wanted_voters=(0, 1, 2), fetch_timeout_ms=FETCH_TIMEOUT_MS, now_ms=0
    )
    announced = [broker(node_id) for node_id in range(3)]
    for node_id in range(3):
        machine.fetched(key(node_id), EPOCH_START + 1, EPOCH_START + 1, 0)
    assert machine.next_voters(announced, 0, leaving={1, 2}) is None
    assert machine.next_voters(announced, 0, leaving={1}) == voters(key(0), key(2))
