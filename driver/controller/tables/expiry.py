"""Takes snapshots out of a table, and deletes the manifests and manifest lists that no other snapshot has.

Data files stay, and so does the snapshot of a branch or a tag, as long as that is there.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableUpdate,
)

from sparklog.driver.controller.tables.commits import commit_once
from sparklog.driver.controller.tables.machine.events import ExpireSnapshots
from sparklog.driver.controller.tables.machine.snapshot_refs import without_main
from sparklog.driver.controller.tables.named_by_table import table_refs
from sparklog.driver.controller.tables.table_errors import StaleTableError


class SnapshotExpiry:
    def __init__(self) -> None:
        self._paths: dict[int, frozenset[str]] = {}
        """Of manifest list and manifests, by snapshots."""

    def expire(self, table: Table, effect: ExpireSnapshots, proceed: Callable[[], None]) -> tuple[int, ...]:
        """Take snapshots and refs out of the table as it is now; return the snapshots that are out.

        Metadata that stays when `proceed` raises after the commit is found by a list of all objects.

        Raises:
            StaleTableError: a branch or a tag has come or moved meanwhile.
        """
        table.refresh()
        snapshot_ids = effect.snapshot_ids
        known = {each.snapshot_id: each for each in table.snapshots()}
        refs = table.metadata.refs
        if set(without_main(table_refs(table.metadata))) != set(effect.known_refs):
            raise StaleTableError
        protected = {ref.snapshot_id for name, ref in refs.items() if name not in effect.ref_names}
        expired = [each for each in snapshot_ids if each in known and each not in protected]
        if not expired and not effect.ref_names:
            return tuple(each for each in snapshot_ids if each not in known)
        gone = self._paths_of(table, (known[each] for each in expired), proceed)
        # A branch or a tag goes before its snapshot.
        updates: list[TableUpdate] = [
            RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in effect.ref_names
        ]
        if expired:
            updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": expired}))
        unmoved = [
            AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
            for name, ref in refs.items()
        ]
        proceed()
        try:
            commit_once(table, updates, unmoved)
        except CommitFailedException as error:
            raise StaleTableError from error
        left = table.snapshots()
        kept = self._paths_of(table, left, proceed)
        for path in gone - kept:
            proceed()
            with suppress(FileNotFoundError):
                table.io.delete(path)
        ids = {each.snapshot_id for each in left}
        self._paths = {id: paths for id, paths in self._paths.items() if id in ids}
        return tuple(each for each in snapshot_ids if each not in ids)

    def _paths_of(
        self, table: Table, snapshots: Iterable[Snapshot], proceed: Callable[[], None]
    ) -> frozenset[str]:
        found: set[str] = set()
        for snapshot in snapshots:
            if snapshot.snapshot_id not in self._paths:
                proceed()
                manifests = (each.manifest_path for each in snapshot.manifests(table.io))
                self._paths[snapshot.snapshot_id] = frozenset((snapshot.manifest_list, *manifests))
            found |= self._paths[snapshot.snapshot_id]
        return frozenset(found)
