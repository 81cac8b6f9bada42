"""Removals from the catalogue and the store: snapshots that have expired, and objects that none has.

Pure. Objects of the table's own prefix are found by a list: pieces that a crash has left, metadata that no
snapshot has, and files that other writers have left there. No other program collects these, since the table
has gc.enabled=false. Another writer's object may be in the next snapshot of a branch, so it stays for
`OTHERS_GRACE_MS`, as Iceberg's remove_orphan_files has it.

When snapshots were superseded: a query may begin on a snapshot for as long as it is the newest one.

So the retention counts from then, and not from when a snapshot was made: a table without commits for an hour
has a newest snapshot of an hour ago, which queries of this minute read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sparklog.driver.controller.tables.machine.deletions import TableDeletions
from sparklog.driver.controller.tables.machine.events import (
    DeleteObjects,
    ExpireSnapshots,
    FindHeld,
    HeldFound,
    ListObjects,
    ObjectsListed,
    TableEffect,
    TableSnapshot,
)
from sparklog.driver.controller.tables.machine.snapshot_refs import (
    MAIN,
    Ancestor,
    TableRef,
    expired_refs,
    kept_snapshots,
    without_main,
)
from sparklog.driver.controller.tables.machine.table_files import TABLES
from sparklog.driver.controller.tables.machine.table_status import RefFiles
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import named_objects
from sparklog.node.remote_log.machine.names import leader_epoch_of
from sparklog.protocol.types import TimestampMs


class SnapshotAges:
    def __init__(self) -> None:
        self._superseded_ms: dict[int, TimestampMs] = {}
        """By ids, of snapshots that have been the newest here."""

    def superseded(self, snapshot: TableSnapshot | None, wall_ms: TimestampMs) -> None:
        """Note that a snapshot that was the newest is no longer; None for none."""
        if snapshot is not None:
            self._superseded_ms[snapshot.snapshot_id] = wall_ms

    def keep(
        self, snapshots: Sequence[TableSnapshot], newest: TableSnapshot | None, wall_ms: TimestampMs
    ) -> None:
        """Forget all but these, the oldest first; a last one that is not the newest is superseded by now."""
        ids = {each.snapshot_id for each in snapshots}
        self._superseded_ms = {id: at_ms for id, at_ms in self._superseded_ms.items() if id in ids}
        if snapshots and snapshots[-1] != newest:
            self._superseded_ms.setdefault(snapshots[-1].snapshot_id, wall_ms)

    def expired(
        self, snapshots: Sequence[TableSnapshot], newest: TableSnapshot, before_ms: TimestampMs
    ) -> tuple[int, ...]:
        """Return the ids of those of `snapshots`, the oldest first, that were superseded before a time.

        The last child of a snapshot says when, as far as it was not seen: a snapshot has the time of its
        writer's attempt, and one that a rollback has made the newest again has a later child. A snapshot
        without children was rolled back, and the next one of the table says.
        """
        until_ms = dict.fromkeys((each.snapshot_id for each in snapshots), 0)
        until_ms |= {each.snapshot_id: next_one.timestamp_ms for each, next_one in pairwise(snapshots)}
        for each in snapshots:
            if each.parent_id in until_ms:
                until_ms[each.parent_id] = max(until_ms[each.parent_id], each.timestamp_ms)
        return tuple(
            id
            for id, at_ms in until_ms.items()
            if id != newest.snapshot_id and max(at_ms, self._superseded_ms.get(id, 0)) < before_ms
        )


LISTING_INTERVAL_MS: Final = 6 * 60 * 60 * 1000
OTHERS_GRACE_MS: Final = 3 * 24 * 60 * 60 * 1000
EXPIRIES: Final = 10
"""So often within their retention snapshots are looked through."""


@dataclass(frozen=True, slots=True)
class TableView:
    snapshots: tuple[TableSnapshot, ...]
    newest: TableSnapshot
    files: Collection[str]
    """The names of those that the newest snapshot has, or the next one will have."""
    manifests: Mapping[int, Manifest]
    is_left: bool
    """Whether the topic is deleted, and its rows have left the table with it."""


class TableCleaning:
    def __init__(self, listing_interval_ms: int, others_grace_ms: int) -> None:
        self._listing_interval_ms: Final = listing_interval_ms
        self._others_grace_ms: Final = others_grace_ms
        self._next_listing_ms = self._next_expiry_ms = 0
        self._refs: tuple[TableRef, ...] = ()
        self._kept: dict[int, str] = {}
        """The snapshots that refs keep."""
        self.ages: Final = SnapshotAges()
        self.deletions: Final = TableDeletions()
        self.held: tuple[RefFiles, ...] = ()
        """The files that refs keep; the loop reads this while a thread is at work on the rest."""

    def table_read(
        self,
        snapshots: Sequence[TableSnapshot],
        newest: TableSnapshot | None,
        refs: tuple[TableRef, ...],
        wall_ms: TimestampMs,
    ) -> None:
        self.ages.keep(snapshots, newest, wall_ms)
        self._refs = refs

    def next_expiry(
        self, view: TableView, retention_ms: int, now_ms: int, wall_ms: TimestampMs
    ) -> ExpireSnapshots | None:
        ancestors = {each.snapshot_id: Ancestor(each.parent_id, each.timestamp_ms) for each in view.snapshots}
        gone = expired_refs(self._refs, ancestors, wall_ms)
        left = [ref for ref in without_main(self._refs) if ref not in gone]
        if not view.is_left:
            # Otherwise rows leave with the topic, and `main` keeps none of its history.
            newest_id = view.newest.snapshot_id
            left += [ref._replace(snapshot_id=newest_id) for ref in self._refs if ref.name == MAIN]
        kept = kept_snapshots(left, ancestors, wall_ms)
        if kept != self._kept:
            self._kept = kept
            self.held = self.deletions.held(kept)
        if now_ms < self._next_expiry_ms:
            return None
        self._next_expiry_ms = now_ms + retention_ms // EXPIRIES
        expired = self.ages.expired(view.snapshots, view.newest, wall_ms - retention_ms)
        ids = tuple(id for id in expired if id not in self._kept)
        if not ids and not gone:
            return None
        return ExpireSnapshots(ids, tuple(ref.name for ref in gone), without_main(self._refs))

    def next_deletion(self, view: TableView, now_ms: int) -> TableEffect | None:
        if view.is_left and not self._kept:
            # All of the topic's objects go at once when the last snapshot is alone.
            return None
        if not view.is_left:
            self.deletions.note_out(view.manifests.values(), view.files, view.newest.sequence_number)
        due = self.deletions.due(view.snapshots, self._kept | {view.newest.snapshot_id: MAIN})
        if due.deleted:
            return DeleteObjects(due.deleted)
        if due.looked_for:
            return FindHeld(due.looked_for, due.among)
        if now_ms < self._next_listing_ms:
            return None
        # Once more a few hours later.
        self._next_listing_ms = now_ms + self._listing_interval_ms
        return ListObjects()

    def objects_listed(self, event: ObjectsListed, view: TableView, wall_ms: TimestampMs) -> None:
        in_use = set(view.files)
        for manifest in view.manifests.values():
            in_use |= named_objects(manifest)
        old_ms = wall_ms - self._others_grace_ms
        orphans: list[str] = []
        unused: list[str] = []
        for name, _, modified_ms in event.objects:
            if name in in_use:
                continue
            if is_others(name):
                if modified_ms < old_ms and name.rpartition("/")[2] not in event.metadata_in_use:
                    unused.append(name)
            elif _is_orphan(name, view):
                orphans.append(name)
        self.deletions.orphans_found(orphans, view.newest.sequence_number)
        self.deletions.unused_found(unused)

    def held_found(self, effect: FindHeld, event: HeldFound) -> None:
        self.deletions.looked_for(effect.names, effect.snapshot_ids, event.files)
        self.held = self.deletions.held(self._kept)

    def removed(self, names: Iterable[str], manifests: Mapping[int, Manifest], sequence_number: int) -> None:
        """Note files that a commit has removed; a segment of which a part counts is in a manifest still."""
        named = {segment.name for each in manifests.values() for segment in each.segments}
        self.deletions.removed((name for name in names if name not in named), sequence_number)


def is_others(name: str) -> bool:
    """Return whether an object of the table is metadata or another writer's file, by its name.

    Pieces have the names of their segments.
    """
    return name.startswith(TABLES) and leader_epoch_of(name) is None


def _is_orphan(name: str, view: TableView) -> bool:
    """Return whether an object that is not in use never will be.

    A segment of the present leader epoch may be in the next manifest; those of earlier ones no leader can
    bring into a manifest any more.
    """
    if name.startswith(TABLES) or view.is_left:
        return True
    leader_epoch = leader_epoch_of(name)
    partition = name.split("/")[-2]
    manifest = view.manifests.get(int(partition)) if partition.isdecimal() else None
    return leader_epoch is not None and manifest is not None and leader_epoch < manifest.leader_epoch
