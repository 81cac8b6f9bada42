"""Who voted where in the log: a snapshot says it, a truncation takes it back."""

from uuid import UUID

from sparklog.driver.controller.machine.voter_history import VoterHistory
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet


def voters(*node_ids: int) -> VoterSet:
    return VoterSet.of(Voter(VoterKey(node_id, UUID(int=node_id)), "127.0.0.1", 9000) for node_id in node_ids)


def test_voters_before_an_offset_are_those_of_the_last_record_below_it() -> None:
    """The record at the end offset itself is not in a snapshot that ends there."""
    history = VoterHistory()
    history.append(3, voters(1))
    history.append(10, voters(1, 2, 3))
    assert [history.before(end) for end in (3, 4, 10, 11, 99)] == [
        None,
        voters(1),
        voters(1),
        voters(1, 2, 3),
        voters(1, 2, 3),
    ]
    assert history.latest == voters(1, 2, 3)


def test_voters_that_were_truncated_are_not_in_force_any_more() -> None:
    """The set before them is, as if they had never been written."""
    history = VoterHistory()
    history.append(3, voters(1))
    history.append(10, voters(1, 2, 3))
    history.truncate_to(11)
    assert history.latest == voters(1, 2, 3)
    history.truncate_to(10)
    assert history.latest == voters(1)
    history.truncate_to(0)
    assert history.latest is None


def test_voters_of_a_snapshot_are_in_force_from_its_end_on() -> None:
    """What the log said before is gone with it."""
    history = VoterHistory()
    history.append(3, voters(1))
    history.begin_at(20, voters(4, 5, 6))
    assert history.before(20) == history.latest == voters(4, 5, 6)
    history.append(20, voters(4, 5))
    assert (history.before(20), history.before(21)) == (voters(4, 5, 6), voters(4, 5))
    history.truncate_to(20)
    assert history.latest == voters(4, 5, 6)
    history.begin_at(30, None)
    assert history.latest is None
