"""The files that a table has beside those that its topic has, and what differs, partition by partition.

Pure. The tables and topics of years have 100,000 files, and of all these an effect changes a few. So a
partition is compared as a whole only when its manifest is another object, or the files were read again;
commits and windows without a record change the groups that are left of the last comparison.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.driver.controller.tables.machine.events import Commit, Retention
from sparklog.driver.controller.tables.machine.next_commit import (
    Group,
    PartitionChange,
    Taken,
    partition_change,
    windows,
    without,
)
from sparklog.driver.controller.tables.machine.table_files import LiveFile, TableFile, Window
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.protocol.types import Offset


class TableDifference:
    def __init__(self) -> None:
        self.live_names: set[str] = set()
        """Of the files of the newest snapshot."""
        self._files: dict[int, dict[str, LiveFile]] = {}
        """The same files by partitions and names."""
        self._manifests: Mapping[int, Manifest] = {}
        self._retention: Retention | None = None
        """That the comparisons were made for."""
        self._wanted: Final[dict[int, dict[str, Window]]] = {}
        """The windows of manifests, by partitions and segments."""
        self._changes: Final[dict[int, PartitionChange | None]] = {}
        """Of the partitions that were compared; None for no difference."""

    def files_read(self, files: Iterable[LiveFile]) -> None:
        self._files, self.live_names = {}, set()
        self._add(files)
        self._changes.clear()

    def manifests_read(self, manifests: Mapping[int, Manifest]) -> None:
        """Take the manifests of all partitions; one that has not changed is the same object as before."""
        for partition in self._manifests.keys() | manifests.keys():
            if self._manifests.get(partition) is not manifests.get(partition):
                self._wanted.pop(partition, None)
                self._changes.pop(partition, None)
        self._manifests = manifests

    def committed(self, commit: Commit, taken: Taken) -> None:
        """Take a commit of the groups that `taken` has of the last `changes`."""
        for file in commit.removed:
            del self._files[file.partition][file.name]
            self.live_names.discard(file.name)
        self._add(file.live for file in commit.added)
        for partition, count in taken.counts.items():
            change = self._changes.get(partition)
            if change is not None:
                self._replace(change, change.groups[count:])

    def is_empty(self, window: Window) -> None:
        """Note that a window has no record: the table lacks nothing of it."""
        change = self._changes.get(window.partition)
        if change is not None:
            self._replace(change, without(change.groups, window))

    def is_wanted(self, window: Window, retention: Retention) -> bool:
        """Return whether a manifest has this window."""
        found = self._wanted_of(window.partition, retention).get(window.segment.name)
        return found == window

    def is_named(self, file: TableFile, retention: Retention) -> bool:
        """Return whether a manifest has a segment with this file's name."""
        return file.name in self._wanted_of(file.partition, retention)

    def changes(self, retention: Retention, empty: Iterable[Window]) -> list[PartitionChange]:
        """Return the differences of all partitions that have one; `empty` windows have no record."""
        self._compare_for(retention)
        stale = self._manifests.keys() - self._changes.keys()
        empty_by_name = {window.segment.name: window for window in empty} if stale else {}
        for partition in stale:
            self._changes[partition] = partition_change(
                self._manifests[partition],
                self._files.get(partition, {}).values(),
                retention,
                self._wanted_of(partition, retention),
                empty_by_name,
            )
        found = (self._changes[partition] for partition in sorted(self._manifests))
        return [change for change in found if change is not None]

    def all_out(self, end_offsets: Mapping[int, Offset]) -> list[PartitionChange]:
        """Return the changes by which all files leave; no others follow."""
        self._changes.clear()
        return [
            PartitionChange(partition, end_offsets.get(partition, 0), (Group(0, (), tuple(files.values())),))
            for partition, files in sorted(self._files.items())
            if files
        ]

    def _add(self, files: Iterable[LiveFile]) -> None:
        for file in files:
            self._files.setdefault(file.partition, {})[file.name] = file
            self.live_names.add(file.name)

    def _replace(self, change: PartitionChange, groups: tuple[Group, ...]) -> None:
        left = PartitionChange(change.partition, change.end_offset, groups) if groups else None
        self._changes[change.partition] = left

    def _wanted_of(self, partition: int, retention: Retention) -> dict[str, Window]:
        self._compare_for(retention)
        found = self._wanted.get(partition)
        if found is None:
            manifest = self._manifests.get(partition)
            of_manifest = [] if manifest is None else windows(manifest, retention)
            found = self._wanted[partition] = {window.segment.name: window for window in of_manifest}
        return found

    def _compare_for(self, retention: Retention) -> None:
        if retention is not self._retention:
            self._wanted.clear()
            self._changes.clear()
            self._retention = retention
