"""Takes snapshots out of a table, and deletes the manifests and manifest lists that no other snapshot has.

Data files stay, and so do snapshots that a tag or a branch has.
"""

from collections.abc import Iterable
from contextlib import suppress

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.snapshot import ExpireSnapshots

from sparklog.driver.controller.tables.commits import commit_once
from sparklog.driver.controller.tables.table_errors import StaleTableError


class SnapshotExpiry:
    """Of one table."""

    def __init__(self) -> None:
        self._paths: dict[int, frozenset[str]] = {}
        """Of manifest list and manifests, by snapshots."""

    def expire(self, table: Table, snapshot_ids: Iterable[int]) -> tuple[int, ...]:
        """Take snapshots out of the table as it is now; return those that are out.

        Raises:
            StaleTableError: a branch or a tag has moved meanwhile.
        """
        table.refresh()
        snapshot_ids = tuple(snapshot_ids)
        known = {each.snapshot_id: each for each in table.snapshots()}
        refs = table.metadata.refs
        protected = {ref.snapshot_id for ref in refs.values()}
        expired = [each for each in snapshot_ids if each in known and each not in protected]
        if not expired:
            return tuple(each for each in snapshot_ids if each not in known)
        gone = self._paths_of(table, (known[each] for each in expired))
        updates, _ = ExpireSnapshots(Transaction(table)).by_ids(expired)._commit()
        unmoved = [
            AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
            for name, ref in refs.items()
        ]
        try:
            commit_once(table, updates, unmoved)
        except CommitFailedException as error:
            raise StaleTableError from error
        left = table.snapshots()
        kept = self._paths_of(table, left)
        for path in gone - kept:
            with suppress(FileNotFoundError):
                table.io.delete(path)
        ids = {each.snapshot_id for each in left}
        self._paths = {id: paths for id, paths in self._paths.items() if id in ids}
        return tuple(each for each in snapshot_ids if each not in ids)

    def _paths_of(self, table: Table, snapshots: Iterable[Snapshot]) -> frozenset[str]:
        found: set[str] = set()
        for snapshot in snapshots:
            if snapshot.snapshot_id not in self._paths:
                manifests = (each.manifest_path for each in snapshot.manifests(table.io))
                self._paths[snapshot.snapshot_id] = frozenset((snapshot.manifest_list, *manifests))
            found |= self._paths[snapshot.snapshot_id]
        return frozenset(found)
