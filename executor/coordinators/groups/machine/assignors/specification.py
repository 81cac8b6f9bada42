"""Input and output of an assignor.

Racks are not part of it: Kafka 4.3's server-side assignors ignore them too. A rack change only triggers a new
assignment (`metadata_hash`).

Source: Kafka's GroupSpec and MemberSubscription.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; no topic is without partitions."""

NOTHING: Final[Assignment] = MappingProxyType({})


class MemberSpecification(NamedTuple):
    """A member: the existing topics that it subscribes to, and its former target assignment."""

    instance_id: str | None
    subscribed_topic_ids: Set[UUID]
    assignment: Assignment = NOTHING


@dataclass(frozen=True)
class GroupSpecification:
    """A group's members by id, and the number of partitions of every topic that one of them subscribes to.

    No partition is assigned to two members.
    """

    members: Mapping[str, MemberSpecification]
    partition_counts: Mapping[UUID, int]

    @cached_property
    def homogeneous(self) -> bool:
        subscriptions = iter([member.subscribed_topic_ids for member in self.members.values()])
        first = next(subscriptions, None)
        return all(other is first or other == first for other in subscriptions)


Assignor: TypeAlias = Callable[[GroupSpecification], dict[str, Assignment]]
"""Returns the assignment of every member; each partition of a topic goes to one of its subscribers."""
