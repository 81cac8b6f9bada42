"""All groups of a partition by id, including simple groups, which consist of offsets only.

Offsets committed without a member make a simple group: an empty classic one without a protocol type. A
partition may have a million of these. No object is kept for them: such a group is made on access, and stored
only when a member joins.
"""

from collections.abc import Iterator, MutableMapping
from itertools import chain
from typing import Final

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.groups.machine.offset_store import OffsetStore

_RELEASED_AT_ONCE: Final = 64
"""Groups, each with its members, released in one turn of the loop."""


class Groups(MutableMapping[str, Group]):
    def __init__(self, store: OffsetStore) -> None:
        self._groups: dict[str, Group] = {}
        self._store = store
        self.knows_simple_groups = False
        """False during a load: the record that determines a group's type may come after its offsets."""

    def __getitem__(self, group_id: str) -> Group:
        """Return a group; a simple one is a new object each time, until it is stored."""
        group = self._groups.get(group_id)
        if group is not None:
            return group
        if self.knows_simple_groups and self._store.has(group_id):
            return ClassicGroup(group_id)
        raise KeyError(group_id)

    def kept(self, group_id: str) -> Group | None:
        """Return a stored group; simple groups without a member are not stored."""
        return self._groups.get(group_id)

    def __setitem__(self, group_id: str, group: Group) -> None:
        self._groups[group_id] = group

    def __delitem__(self, group_id: str) -> None:
        """Remove a group; if it has offsets it becomes a simple one."""
        self._groups.pop(group_id, None)

    def ids(self) -> Iterator[str]:
        """Iterate over the present ids; groups may change meanwhile.

        There may be a million: the call itself costs no more than copying a list of them.
        """
        groups = dict(self._groups)
        simple = self._store.group_ids() if self.knows_simple_groups else ()
        return chain(groups, (group_id for group_id in simple if group_id not in groups))

    def __iter__(self) -> Iterator[str]:
        yield from self._groups
        if self.knows_simple_groups:
            yield from (group_id for group_id in self._store if group_id not in self._groups)

    def not_simple(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def release(self) -> Iterator[None]:
        while self._groups:
            for _ in range(min(len(self._groups), _RELEASED_AT_ONCE)):
                self._groups.popitem()
            yield

    def __len__(self) -> int:
        """Count the groups in linear time."""
        return sum(1 for _ in self)
