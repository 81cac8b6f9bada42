"""Voters of the metadata log: a broker's node id with the directory of its copy.

A broker that returns with another directory has lost its votes and its log, so it is not the former voter
(KIP-853). Majorities are counted over the set in force, which is the last one in the log, committed or not;
consecutive sets differ by one voter, so that their majorities overlap.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sparklog.protocol.types import BrokerId


class VoterKey(NamedTuple):
    node_id: BrokerId
    directory_id: UUID

    def __str__(self) -> str:
        return f"broker {self.node_id} with directory {self.directory_id}"


class Voter(NamedTuple):
    """A voter, and its endpoint when it became one."""

    key: VoterKey
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, in the order of their node ids, which are unique."""

    voters: tuple[Voter, ...]

    def __post_init__(self) -> None:
        node_ids = [voter.key.node_id for voter in self.voters]
        assert node_ids == sorted(set(node_ids)), (
            f"voters must be in order and without repetition: {node_ids}"
        )

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        return cls(tuple(sorted(voters)))

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __contains__(self, key: object) -> bool:
        return any(voter.key == key for voter in self.voters)

    @property
    def keys(self) -> frozenset[VoterKey]:
        return frozenset(voter.key for voter in self.voters)

    @property
    def majority(self) -> int:
        """Number of voters that form a majority.

        >>> VoterSet(()).majority
        1
        """
        return len(self.voters) // 2 + 1

    def is_majority(self, keys: Iterable[VoterKey]) -> bool:
        """Whether the voters among `keys` are a majority."""
        return len(self.keys & frozenset(keys)) >= self.majority

    def with_node(self, node_id: BrokerId) -> Voter | None:
        """Return the voter with a node id, in any directory."""
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def with_voter(self, voter: Voter) -> "VoterSet":
        return VoterSet.of((*self.voters, voter))

    def without(self, key: VoterKey) -> "VoterSet":
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))
