"""Bugs of a table's committer that its simulation must find."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sparklog.driver.controller.tables.machine import (
    next_commit,
    table_cleaning,
    table_difference,
    topic_table,
)
from sparklog.driver.controller.tables.machine.deletions import Due, TableDeletions
from sparklog.driver.controller.tables.machine.next_commit import Group
from sparklog.driver.controller.tables.machine.table_cleaning import SnapshotAges
from sparklog.driver.controller.tables.machine.table_difference import TableDifference
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from tests.simulation.planted_bug import PlantedBug, Replacement

SEEDS: Final = range(120)


def _never(_: Any) -> bool:
    return False


def _deleted_under_readers() -> Sequence[Replacement]:
    due = TableDeletions.due
    return [Replacement(TableDeletions, "due", lambda self, *_: due(self, [], {}))]


def _expired_by_their_making() -> Sequence[Replacement]:
    def expired(_: SnapshotAges, snapshots: Any, newest: Any, before_ms: int) -> tuple[int, ...]:
        return tuple(
            each.snapshot_id for each in snapshots if each.timestamp_ms < before_ms and each != newest
        )

    return [Replacement(SnapshotAges, "expired", expired)]


def _branches_expire() -> Sequence[Replacement]:
    def kept_heads(refs: Any, *_: Any) -> dict[int, str]:
        return {ref.snapshot_id: ref.name for ref in refs}

    return [Replacement(table_cleaning, "kept_snapshots", kept_heads)]


def _deleted_under_tags() -> Sequence[Replacement]:
    due = TableDeletions.due

    def without_kept(self: TableDeletions, snapshots: Any, kept: Any) -> Any:
        return due(self, [each for each in snapshots if each.snapshot_id not in kept], kept)

    return [Replacement(TableDeletions, "due", without_kept)]


def _deletions_wait_for_tags() -> Sequence[Replacement]:
    due = TableDeletions.due
    return [Replacement(TableDeletions, "due", lambda self, snapshots, _: due(self, snapshots, {}))]


def _deletions_wait_for_branches() -> Sequence[Replacement]:
    due = TableDeletions.due

    def once_others_expired(self: TableDeletions, snapshots: Any, kept: Any) -> Any:
        is_waiting = any(each.topic_id is None and each.snapshot_id not in kept for each in snapshots)
        return Due() if is_waiting else due(self, snapshots, kept)

    return [Replacement(TableDeletions, "due", once_others_expired)]


def _others_files_collected() -> Sequence[Replacement]:
    return [Replacement(table_cleaning, "is_others", _never)]


def _others_ignored() -> Sequence[Replacement]:
    read = TopicTable._table_read

    def table_read(self: TopicTable, event: Any) -> None:
        read(self, event)
        self._problem = None
        self._has_read_table = True

    return [Replacement(TopicTable, "_table_read", table_read)]


def _higher_owner_ignored() -> Sequence[Replacement]:
    def end(self: TopicTable, _: int) -> None:
        self._has_read_table = self._has_read_manifests = True

    return [Replacement(TopicTable, "_end", end)]


def _files_never_read_again() -> Sequence[Replacement]:
    read = TableDifference.files_read

    def read_once(self: TableDifference, files: Iterable[Any]) -> None:
        if not self.live_names:
            read(self, files)

    return [Replacement(TableDifference, "files_read", read_once)]


def _comparison_kept() -> Sequence[Replacement]:
    read = TableDifference.files_read

    def compared_once(self: TableDifference, files: Iterable[Any]) -> None:
        changes = dict(self._changes)
        read(self, files)
        self._changes.update(changes)

    return [Replacement(TableDifference, "files_read", compared_once)]


def _manifests_compared_once() -> Sequence[Replacement]:
    read = TableDifference.manifests_read

    def compared_once(self: TableDifference, manifests: Any) -> None:
        changes = dict(self._changes)
        read(self, manifests)
        self._changes.update(changes)

    return [Replacement(TableDifference, "manifests_read", compared_once)]


def _groups_committed_twice() -> Sequence[Replacement]:
    return [Replacement(TableDifference, "_replace", lambda *_: None)]


def _parts_of_segments_taken_whole() -> Sequence[Replacement]:
    return [Replacement(topic_table, "is_whole", lambda *_: True)]


def _log_start_ignored() -> Sequence[Replacement]:
    make = table_difference.windows

    def from_zero(manifest: Any, _: Any) -> Any:
        return make(manifest, next_commit.Retention.FOREVER)

    return [Replacement(table_difference, "windows", from_zero)]


def _overlaps_apart() -> Sequence[Replacement]:
    group = next_commit._groups

    def apart(missing: Any, removed: Any) -> Iterable[Group]:
        for each in group(missing, removed):
            yield from (Group(each.start_offset, (one,), ()) for one in each.missing)
            yield from (Group(each.start_offset, (), (one,)) for one in each.removed)

    return [Replacement(next_commit, "_groups", apart)]


def _rows_not_kept() -> Sequence[Replacement]:
    return [Replacement(next_commit, "_is_kept", lambda *_: False)]


def _young_orphans_collected() -> Sequence[Replacement]:
    return [Replacement(table_cleaning, "_is_orphan", lambda *_: True)]


def _deleted_topic_forgotten() -> Sequence[Replacement]:
    return [Replacement(TopicTable, "_gives_all_up", property(_never))]


PLANTED: Final = {
    "deleted-under-readers": PlantedBug(
        "a file goes while older snapshots have it", _deleted_under_readers, SEEDS
    ),
    "branches-expire": PlantedBug("a branch has fewer snapshots than it is given", _branches_expire, SEEDS),
    "deleted-under-tags": PlantedBug(
        "a file goes that a snapshot of a branch or a tag has", _deleted_under_tags, SEEDS
    ),
    "deletions-wait-for-tags": PlantedBug(
        "nothing is deleted as long as there is a tag", _deletions_wait_for_tags, SEEDS
    ),
    "deletions-wait-for-branches": PlantedBug(
        "nothing is deleted as long as a branch gets commits", _deletions_wait_for_branches, SEEDS
    ),
    "others-files-collected": PlantedBug(
        "another writer's file goes before its commit", _others_files_collected, SEEDS
    ),
    "expired-by-their-making": PlantedBug(
        "a snapshot goes that was the newest a moment ago", _expired_by_their_making, SEEDS
    ),
    "others-ignored": PlantedBug("commits go on top of another writer's", _others_ignored, SEEDS),
    "higher-owner-ignored": PlantedBug("a deposed application goes on", _higher_owner_ignored, SEEDS),
    "files-never-read-again": PlantedBug(
        "a commit that was not answered is made again", _files_never_read_again, SEEDS
    ),
    "comparison-kept": PlantedBug(
        "files that were read again are not compared again", _comparison_kept, SEEDS
    ),
    "manifests-compared-once": PlantedBug(
        "a partition is not compared with its next manifest", _manifests_compared_once, SEEDS
    ),
    "groups-committed-twice": PlantedBug(
        "a comparison keeps what a commit has taken of it", _groups_committed_twice, SEEDS
    ),
    "parts-taken-whole": PlantedBug(
        "a segment counts as a whole though a part of it was cut", _parts_of_segments_taken_whole, SEEDS
    ),
    "log-start-ignored": PlantedBug("deleted records stay in the table", _log_start_ignored, SEEDS),
    "overlaps-apart": PlantedBug(
        "a merged segment comes without its parts leaving at once", _overlaps_apart, SEEDS
    ),
    "rows-not-kept": PlantedBug("rows leave a table that keeps them", _rows_not_kept, SEEDS),
    "young-orphans-collected": PlantedBug(
        "an object goes that a leader is about to name", _young_orphans_collected, SEEDS
    ),
    "deleted-topic-forgotten": PlantedBug("a deleted topic's rows stay", _deleted_topic_forgotten, SEEDS),
}
