"""Voter sets: majorities, and changes by one."""

from uuid import UUID

import pytest

from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet


def _voter(node_id: int, directory: int = 0) -> Voter:
    return Voter(VoterKey(node_id, UUID(int=1000 * (directory + 1) + node_id)), f"host-{node_id}", 9093)


@pytest.mark.parametrize("size, majority", [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_voter_set_majority_is_more_than_half(size: int, majority: int) -> None:
    """Two majorities of the same set must share a voter."""
    assert VoterSet.of(_voter(node_id) for node_id in range(size)).majority == majority


def test_voter_set_counts_a_node_with_another_directory_as_a_stranger() -> None:
    """An empty disk has forgotten its votes."""
    voters = VoterSet.of([_voter(0), _voter(1), _voter(2)])
    assert not voters.is_majority([_voter(0).key, _voter(1, directory=1).key, _voter(2, directory=1).key])
    assert voters.is_majority([_voter(0).key, _voter(2).key])
    assert voters.with_node(1) == _voter(1)


def test_voter_set_changes_by_one_voter() -> None:
    """Replacing a voter is two changes, each of which keeps majorities overlapping."""
    voters = VoterSet.of([_voter(2), _voter(0), _voter(1)])
    without = voters.without(_voter(1).key)
    assert without.keys == {_voter(0).key, _voter(2).key}
    assert without.with_voter(_voter(1, directory=1)).keys == {
        _voter(0).key,
        _voter(1, directory=1).key,
        _voter(2).key,
    }
