"""The table of one topic as one committer keeps it: read, compare with the manifests, commit, expire, delete.

Pure: events in, effects out. A machine lives from a controller's election, or from the creation of the topic,
to the controller's end.

Rules it keeps
- A record of the manifests is in the newest snapshot once. Each commit is the difference between the files of
  the newest snapshot and the manifests, read in this order; its parent is that snapshot, and the catalogue
  refuses it if the table has another one by then. So a commit that was repeated after a lost answer, or that
  a former driver has still under way, either came first, and is seen, or fails.
- A snapshot of another writer ends commits, until it is taken back. A snapshot of a higher owner epoch, or a
  manifest of one, ends this machine: another application goes on with the table.
- The first commit of a machine is its claim, also if nothing changes. From then on no commit of a former one
  can succeed, since the newest snapshot is another one. Nothing is deleted before, nor while a commit whose
  outcome is unknown could still succeed.
- An object is deleted when no manifest names it and no snapshot has it: those that are older than the first
  one at which it was seen to be out of the table have expired, or are kept by a branch or a tag and were
  looked through. Leaders delete no segment
  that a manifest of a table's topic has named (`TierConfig.is_table`): they leave it to this machine.

Order for the caller: pass each event, carry the effect out, pass its answer. A new machine gets `Ticked`
first, and about once a second from then on.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.driver.controller.tables.machine.events import (
    Commit,
    CommitStale,
    Committed,
    ConfigChanged,
    EffectFailed,
    FindHeld,
    FootersRead,
    HeldFound,
    ManifestsRead,
    ObjectsDeleted,
    ObjectsListed,
    PiecesWritten,
    ReadFooters,
    ReadManifests,
    ReadTable,
    Retention,
    SnapshotsExpired,
    TableEffect,
    TableEvent,
    TableGone,
    TableIdentity,
    TableNews,
    TableRead,
    TableRefused,
    TableSettings,
    TableSnapshot,
    Ticked,
    TopicDeleted,
    WritePieces,
)
from sparklog.driver.controller.tables.machine.next_commit import (
    MOST_FILES,
    Group,
    PartitionChange,
    Taken,
    has_same_rows,
    is_whole,
    take,
)
from sparklog.driver.controller.tables.machine.table_cleaning import (
    LISTING_INTERVAL_MS,
    OTHERS_GRACE_MS,
    TableCleaning,
    TableView,
)
from sparklog.driver.controller.tables.machine.table_difference import TableDifference
from sparklog.driver.controller.tables.machine.table_files import TableFile, Window
from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.protocol.types import TimestampMs

MOST_FOOTERS: Final = 64
"""Read with one effect."""
_BACKOFF: Final = ExponentialBackoff(first_ms=500, max_ms=30_000)


class TopicTable:
    def __init__(
        self,
        identity: TableIdentity,
        owner_epoch: int,
        committer: str,
        settings: TableSettings,
        partitions: int,
        *,
        most_files: int = MOST_FILES,
        listing_interval_ms: int = LISTING_INTERVAL_MS,
        others_grace_ms: int = OTHERS_GRACE_MS,
    ) -> None:
        """`committer` is unique to this machine; a commit takes about `most_files` files."""
        self._most_files: Final = most_files
        self.identity: Final = identity
        self.owner_epoch: Final = owner_epoch
        self.committer: Final = committer
        self.settings = settings
        self.partitions = partitions
        self.ended: str | None = None
        """Why this machine does nothing any more: another application has the table."""
        self._problem: str | None = None
        self._error: str | None = None
        self._failures = 0
        self._next_ms = 0
        """When the next effect may begin, after a failure or until the next commit is due."""
        self._is_unresolved = False
        """Whether a commit may still succeed that has the newest snapshot as its parent."""
        self._now_ms = self._wall_ms = 0
        self._level_ms: int | None = None
        """See `TableStatus.level_ms`."""
        self._manifests_ms = 0
        """When the manifests were read."""
        self._effect: TableEffect | None = None
        self._snapshots: tuple[TableSnapshot, ...] = ()
        self._newest: TableSnapshot | None = None
        self._difference: Final = TableDifference()
        self._known_id: int | None = None
        """The snapshot whose files are in `_difference`."""
        self._taken: Taken | None = None
        """Of the commit under way."""
        self._manifests: Mapping[int, Manifest] = {}
        self._has_read_table = self._has_read_manifests = False
        """In this round."""
        self._footers: dict[str, TableFile] = {}
        """Of segments that the table lacks, by names."""
        self._pieces: dict[Window, tuple[TableFile, ...]] = {}
        """Of windows that the table lacks; of those without a record as long as they are in a manifest."""
        self._cleaning: Final = TableCleaning(listing_interval_ms, others_grace_ms)
        self._began_again = False
        """Whether an earlier table may have rows that this one lacks."""
        self.is_deleted = False
        self.is_finished = False
        """Whether the topic is deleted, and its table needs no more commits."""

    # --- what is so -----------------------------------------------------------------------------

    @property
    def status(self) -> TableStatus:
        committed = {} if self._newest is None else dict(self._newest.end_offsets)
        lag = sum(
            max(0, manifest.end_offset - max(committed.get(partition, 0), manifest.log_start_offset))
            for partition, manifest in self._manifests.items()
        )
        return TableStatus(
            topic=self.identity.topic,
            name=self.identity.name,
            snapshot_id=_id_of(self._newest),
            committed=committed,
            lag=lag,
            problem=self.ended or self._problem or self._error,
            files=len(self._difference.live_names),
            level_ms=self._level_ms,
            held=self._cleaning.held,
        )

    @property
    def _is_claimed(self) -> bool:
        return self._newest is not None and self._newest.committer == self.committer

    # --- events ---------------------------------------------------------------------------------

    def note(self, event: TableNews) -> None:
        """Take news; they answer no effect, and their effects come with the next event."""
        match event:
            case ConfigChanged(settings, partitions):
                self.settings, self.partitions = settings, partitions
            case TopicDeleted():
                self.is_deleted = True
                self._has_read_table = self._has_read_manifests = False
                if self._gives_all_up:
                    self._manifests = {}
        self._next_ms = 0

    def handle(self, event: TableEvent, now_ms: int, wall_ms: TimestampMs) -> TableEffect | None:
        """Handle an event; return the next effect, None for none.

        `now_ms` is of a clock that never goes back; by `wall_ms` snapshots expire.
        """
        self._now_ms, self._wall_ms = now_ms, wall_ms
        if self._level_ms is None:
            self._level_ms = now_ms
        if not isinstance(event, Ticked):
            answered, self._effect = self._effect, None
            assert answered is not None, f"{event} answers no effect"
            if self.ended is None:
                self._handle(event, answered)
        if self.ended is not None or self._effect is not None:
            return None
        self._effect = self._next_effect()
        return self._effect

    def _handle(self, event: TableEvent, effect: TableEffect) -> None:
        match event:
            case EffectFailed():
                self._is_unresolved |= isinstance(effect, Commit)
                self._failed(event.error)
                return
            case TableRefused():
                self._problem = event.problem
                self._begin_round_in(self.settings.commit_interval_ms)
            case TableGone():
                self.is_finished = True
                self._begin_round_in(self.settings.commit_interval_ms)
            case TableRead():
                self._table_read(event)
            case ManifestsRead():
                self._manifests_read(event.manifests)
            case FootersRead():
                self._footers.update(event.files)
                assert isinstance(effect, ReadFooters)
                missing = [each for each in effect.windows if each.segment.name not in event.files]
                if missing:
                    # Another leader has merged it since the manifest was read, or it is lost.
                    self._failed(f"{missing[0].segment.name} is not in the store, but in a manifest")
                    return
            case PiecesWritten():
                self._pieces[event.window] = event.pieces
                if not event.pieces:
                    self._difference.is_empty(event.window)
            case Committed():
                self._committed(event.effect, event.snapshot)
            case CommitStale():
                self._begin_round_in(0)
            case SnapshotsExpired():
                gone = set(event.snapshot_ids)
                self._snapshots = tuple(each for each in self._snapshots if each.snapshot_id not in gone)
            case ObjectsDeleted():
                self._cleaning.deletions.deleted(event.names)
                self._end_long_round()
            case HeldFound():
                assert isinstance(effect, FindHeld)
                self._cleaning.held_found(effect, event)
                self._end_long_round()
            case ObjectsListed():
                self._cleaning.objects_listed(event, self._view, self._wall_ms)
        self._error, self._failures = None, 0

    def _failed(self, error: str) -> None:
        self._error = error
        self._begin_round_in(_BACKOFF.pause_ms(self._failures))
        self._failures += 1

    def _begin_round_in(self, pause_ms: int) -> None:
        """Read table and manifests again after a pause."""
        self._has_read_table = self._has_read_manifests = False
        self._next_ms = self._now_ms + pause_ms

    def _end_long_round(self) -> None:
        """Begin another round once the interval is over: new records wait for no long deletion."""
        if self._has_read_manifests and self._now_ms - self._manifests_ms >= self.settings.commit_interval_ms:
            self._begin_round_in(0)

    def _table_read(self, event: TableRead) -> None:
        newest = event.newest
        if _id_of(newest) != _id_of(self._newest):
            self._is_unresolved = False
            self._cleaning.ages.superseded(self._newest, self._wall_ms)
        self._cleaning.table_read(event.snapshots, newest, event.refs, self._wall_ms)
        self._problem = None
        self._snapshots, self._newest = event.snapshots, newest
        self._began_again |= event.began_again
        if newest is not None and newest.topic_id != self.identity.topic_id:
            self._problem = _another_writers(self.identity.name, newest)
            self._begin_round_in(self.settings.commit_interval_ms)
            return
        if newest is not None and newest.owner_epoch > self.owner_epoch:
            self._end(newest.owner_epoch)
            return
        self._has_read_table = True
        if event.files is not None or newest is None:
            self._difference.files_read(event.files or ())
            self._cleaning.deletions.in_table(self._difference.live_names)
        self._known_id = _id_of(newest)

    def _end(self, owner_epoch: int) -> None:
        self.ended = (
            f"another application goes on with {self.identity.name}, in owner epoch {owner_epoch}; this one "
            f"has {self.owner_epoch}"
        )

    def _manifests_read(self, manifests: Mapping[int, Manifest]) -> None:
        newest_epoch = max((each.owner_epoch for each in manifests.values()), default=0)
        if newest_epoch > self.owner_epoch:
            self._end(newest_epoch)
            return
        if self._gives_all_up:
            # The topic was deleted while they were read.
            return
        self._has_read_manifests = True
        self._manifests, self._manifests_ms = manifests, self._now_ms
        difference, retention = self._difference, self._retention
        difference.manifests_read(manifests)
        self._footers = {
            name: file for name, file in self._footers.items() if difference.is_named(file, retention)
        }
        self._pieces = {
            window: pieces
            for window, pieces in self._pieces.items()
            if difference.is_wanted(window, retention)
        }

    def _committed(self, effect: Commit, snapshot: TableSnapshot) -> None:
        self._is_unresolved = False
        assert self._taken is not None, "a commit was under way"
        self._difference.committed(effect, self._taken)
        self._snapshots = (*self._snapshots, snapshot)
        self._cleaning.ages.superseded(self._newest, self._wall_ms)
        self._newest = snapshot
        self._known_id = snapshot.snapshot_id
        added = {file.name for file in effect.added}
        self._footers = {name: file for name, file in self._footers.items() if name not in added}
        self._pieces = {
            window: pieces
            for window, pieces in self._pieces.items()
            if not pieces or pieces[0].name not in added
        }
        removed = (file.name for file in effect.removed)
        self._cleaning.removed(removed, self._manifests, snapshot.sequence_number)

    # --- what comes next ------------------------------------------------------------------------

    @property
    def _retention(self) -> Retention:
        return self.settings.retention

    def _next_effect(self) -> TableEffect | None:
        if self._now_ms < self._next_ms:
            return None
        if not self._has_read_table:
            return ReadTable(self._known_id)
        if not self._has_read_manifests and not self._gives_all_up:
            return ReadManifests(self.partitions)
        effect = self._next_commit()
        if effect is None:
            self._level_ms = self._manifests_ms
            effect = self._next_cleaning()
        if effect is None:
            is_clean = self._gives_all_up or self._keeps_all or self._cleaning.deletions.is_empty
            self.is_finished = self.is_deleted and is_clean and len(self._snapshots) <= 1
            self._begin_round_in(self.settings.commit_interval_ms)
        return effect

    def _next_commit(self) -> TableEffect | None:
        taken = take(self._changes(), self._most_files)
        effect = self._next_preparation(taken)
        if effect is not None:
            return effect
        may_be_others = self._newest is not None and not self._is_claimed
        if not taken.groups and not may_be_others and not self._is_unresolved:
            return None
        self._taken = taken
        parts = [self._added(group) for group in taken.groups]
        removed = [file for group in taken.groups for file in group.removed]
        added = [file for files in parts for file in files]
        self._cleaning.deletions.in_table(file.name for file in added)
        newest = self._newest
        ends = {} if newest is None else dict(newest.end_offsets)
        ends.update({partition: each.end_offset for partition, each in self._manifests.items()})
        ends.update(taken.end_offsets)
        return Commit(
            parent_id=_id_of(newest),
            added=tuple(added),
            removed=tuple(removed),
            same_rows=bool(removed) and all(map(has_same_rows, taken.groups, parts)),
            end_offsets=tuple(sorted(ends.items())),
            owner_epoch=self.owner_epoch,
            committer=self.committer,
        )

    @property
    def _gives_all_up(self) -> bool:
        """Whether the rows leave the table with their topic."""
        return self.is_deleted and self.settings.retention is Retention.TOPIC

    @property
    def _keeps_all(self) -> bool:
        """Whether a table of before may be the only one that names what the topic has left."""
        return self._began_again and self._retention is Retention.FOREVER

    def _changes(self) -> list[PartitionChange]:
        if self._gives_all_up:
            return self._difference.all_out({} if self._newest is None else self._newest.end_offsets)
        empty = (window for window, pieces in self._pieces.items() if not pieces)
        return self._difference.changes(self._retention, empty)

    def _next_preparation(self, taken: Taken) -> ReadFooters | WritePieces | None:
        """Return the effect by which the files of these groups become known; None if they are."""
        unread: list[Window] = []
        for window in (window for group in taken.groups for window in group.missing):
            if window in self._pieces:
                continue
            file = self._footers.get(window.segment.name)
            if file is None:
                unread.append(window)
            elif not is_whole(window, file, self.settings.partitioned_by):
                return WritePieces(window)
        return ReadFooters(tuple(unread[:MOST_FOOTERS])) if unread else None

    def _added(self, group: Group) -> list[TableFile]:
        files: list[TableFile] = []
        for window in group.missing:
            pieces = self._pieces.get(window)
            files += [self._footers[window.segment.name]] if pieces is None else pieces
        return files

    @property
    def _view(self) -> TableView:
        assert self._newest is not None, "it has a claim"
        files = self._difference.live_names | {piece.name for each in self._pieces.values() for piece in each}
        return TableView(self._snapshots, self._newest, files, self._manifests, self._gives_all_up)

    def _next_cleaning(self) -> TableEffect | None:
        if not self._is_claimed or self._is_unresolved:
            return None
        view = self._view
        expiry = self._cleaning.next_expiry(
            view, self.settings.snapshot_retention_ms, self._now_ms, self._wall_ms
        )
        if expiry is not None:
            return expiry
        if self._keeps_all:
            return None
        return self._cleaning.next_deletion(view, self._now_ms)


def _id_of(snapshot: TableSnapshot | None) -> int | None:
    return None if snapshot is None else snapshot.snapshot_id


def _another_writers(name: str, snapshot: TableSnapshot) -> str:
    return (
        f"snapshot {snapshot.snapshot_id} of {name} is another writer's ({snapshot.description}): nothing is "
        "committed until the table is rolled back to a snapshot of this topic"
    )
