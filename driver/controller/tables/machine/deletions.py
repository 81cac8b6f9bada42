"""The objects that are out of the table, until no snapshot has them and they are deleted.

An object is out when neither a manifest nor the newest snapshot names it. It is not named again: a manifest
gives a segment up for good, and pieces belong to segments. A snapshot of the topic as new as the one at which
it was seen to be out lacks it. Older ones that refs keep are looked through for it (`FindHeld`), the others
expire. Those that another writer has made on a branch are always looked through, since a busy branch has new
ones before its old ones expire. Its later commits have no object that all of these lack.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from sparklog.driver.controller.tables.machine.events import HeldFile, TableSnapshot
from sparklog.driver.controller.tables.machine.table_status import RefFiles
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.names import SEGMENTS

MOST_DELETED_AT_ONCE: Final = 100
MOST_LOOKED_FOR: Final = 1000
_NEVER: Final = 0
"""The sequence number of an object that no snapshot of the topic has had."""


class Due(NamedTuple):
    """At most one of both has names."""

    deleted: tuple[str, ...] = ()
    looked_for: tuple[str, ...] = ()
    among: tuple[int, ...] = ()
    """The snapshots that may have those looked for, kept ones first: these hold files for longer."""


class TableDeletions:
    def __init__(self) -> None:
        self._out_since: dict[str, int] = {}
        """The sequence numbers of the snapshots at which objects were out first."""
        self._deleted: set[str] = set()
        """Objects that manifests still have as unreferenced."""
        self._held: dict[str, HeldFile] = {}
        """Of `_out_since`, by names."""
        self._free_of: dict[str, frozenset[int]] = {}
        """Snapshots that lack an object of `_out_since`, as was seen."""

    @property
    def is_empty(self) -> bool:
        return not self._out_since

    def note_out(self, manifests: Iterable[Manifest], live: Collection[str], sequence_number: int) -> None:
        """Note the segments that these manifests have given up, and `live`, the files of a snapshot, lacks.

        Leaders delete the states of producers by themselves.
        """
        unreferenced = dict.fromkeys(
            name for each in manifests for name in each.unreferenced if name.startswith(SEGMENTS)
        )
        self._deleted &= unreferenced.keys()
        for name in unreferenced:
            if name not in self._deleted and name not in live:
                self._out_since.setdefault(name, sequence_number)

    def removed(self, names: Iterable[str], sequence_number: int) -> None:
        """Note files that a commit has removed, and that no manifest names."""
        for name in names:
            self._out_since.setdefault(name, sequence_number)

    def orphans_found(self, names: Iterable[str], sequence_number: int) -> None:
        """Note objects that neither a manifest nor this snapshot names, and that none of the topic will."""
        for name in names:
            self._out_since.setdefault(name, sequence_number)

    def unused_found(self, names: Iterable[str]) -> None:
        """Note objects that no snapshot of the topic has had or will have."""
        for name in names:
            self._out_since.setdefault(name, _NEVER)

    def in_table(self, names: Iterable[str]) -> None:
        """Note files that a commit is about to add, or that the newest snapshot has."""
        for name in names:
            self._forget(name)

    def due(self, snapshots: Sequence[TableSnapshot], kept: Mapping[int, str]) -> Due:
        """Return the next objects to delete, or else to look for in kept snapshots.

        `snapshots` are all of the table, `kept` those of them that refs keep.
        """
        ids = {each.snapshot_id for each in snapshots}
        expiring = [each for each in snapshots if each.snapshot_id not in kept]
        oldest = min((each.sequence_number for each in expiring), default=None)
        by_since: dict[int, frozenset[int]] = {}
        deleted: list[str] = []
        looked_for: dict[frozenset[int], list[str]] = {}
        for name, since in self._out_since.items():
            held = self._held.get(name)
            if held is not None and held.snapshot_id in ids:
                continue
            if oldest is not None and oldest < since:
                continue
            if since not in by_since:
                by_since[since] = frozenset(
                    each.snapshot_id
                    for each in snapshots
                    if each.topic_id is None or each.sequence_number < since
                )
            unknown = by_since[since] - self._free_of.get(name, frozenset())
            if unknown:
                looked_for.setdefault(unknown, []).append(name)
            else:
                deleted.append(name)
                if len(deleted) == MOST_DELETED_AT_ONCE:
                    break
        if deleted or not looked_for:
            return Due(tuple(deleted))
        among, names = next(iter(looked_for.items()))
        kept_first = sorted(among, key=lambda id: (id not in kept, id))
        return Due((), tuple(islice(names, MOST_LOOKED_FOR)), tuple(kept_first))

    def looked_for(self, names: Iterable[str], among: Iterable[int], held: Iterable[HeldFile]) -> None:
        found = {each.name: each for each in held}
        ids = frozenset(among)
        for name in self._out_since.keys() & set(names):
            if name in found:
                self._held[name] = found[name]
            else:
                self._held.pop(name, None)
                self._free_of[name] = self._free_of.get(name, frozenset()) | ids

    def held(self, kept: Mapping[int, str]) -> tuple[RefFiles, ...]:
        """Return how much each ref keeps of what the table no longer has."""
        files: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for each in self._held.values():
            if each.snapshot_id in kept:
                files[kept[each.snapshot_id]] += 1
                sizes[kept[each.snapshot_id]] += each.size_bytes
        return tuple(RefFiles(name, files[name], sizes[name]) for name in sorted(files))

    def deleted(self, names: Iterable[str]) -> None:
        for name in names:
            self._forget(name)
            if name.startswith(SEGMENTS):
                self._deleted.add(name)

    def _forget(self, name: str) -> None:
        for known in (self._out_since, self._held, self._free_of):
            known.pop(name, None)
