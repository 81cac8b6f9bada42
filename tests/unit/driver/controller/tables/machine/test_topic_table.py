"""One round of a table's committer after the other, effect by effect."""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from sparklog.driver.controller.tables.machine.deletions import MOST_DELETED_AT_ONCE
from sparklog.driver.controller.tables.machine.events import (
    Commit,
    CommitStale,
    Committed,
    DeleteObjects,
    EffectFailed,
    ExpireSnapshots,
    FindHeld,
    FootersRead,
    HeldFile,
    HeldFound,
    ListObjects,
    ManifestsRead,
    ObjectsDeleted,
    ObjectsListed,
    PartitionedBy,
    PiecesWritten,
    ReadFooters,
    ReadManifests,
    ReadTable,
    Retention,
    SnapshotsExpired,
    TableEvent,
    TableIdentity,
    TableRead,
    TableSettings,
    TableSnapshot,
    Ticked,
    TopicDeleted,
    WritePieces,
)
from sparklog.driver.controller.tables.machine.snapshot_refs import TableRef
from sparklog.driver.controller.tables.machine.table_cleaning import OTHERS_GRACE_MS
from sparklog.driver.controller.tables.machine.table_files import TableFile, Window, table_prefix
from sparklog.driver.controller.tables.machine.table_status import RefFiles
from sparklog.driver.controller.tables.machine.topic_table import MOST_FOOTERS, TopicTable
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.object_store import ListedObject

TOPIC_ID: Final = UUID(int=3)
INTERVAL_MS: Final = 60_000
RETENTION_MS: Final = 600_000


def segment(number: int, base: int, end: int) -> RemoteSegment:
    name = f"segments/t-{TOPIC_ID}/0/{base:020d}-0000000000-a-{number}.parquet"
    return RemoteSegment(name, base, end, end - base, 100, 100, 0, 9, 0)


def file_of(each: RemoteSegment) -> TableFile:
    return TableFile(each.name, 0, each.base_offset, each.end_offset - 1, 0, 9, each.record_count, 100, (4,))


A, B, MERGED = segment(1, 0, 10), segment(2, 10, 20), segment(3, 0, 20)


def manifest(
    *segments: RemoteSegment, unreferenced: Iterable[RemoteSegment] = (), start: int = 0
) -> Manifest:
    names = tuple(each.name for each in unreferenced)
    end = max((each.end_offset for each in segments), default=start)
    return Manifest("t", TOPIC_ID, 0, 1, 0, start, end, segments, (), None, names, 0)


class Play:
    """A machine, driven by answers; time passes with each."""

    def __init__(self, *, retention: Retention = Retention.TOPIC) -> None:
        settings = TableSettings(INTERVAL_MS, RETENTION_MS, retention, PartitionedBy.NONE)
        self.machine = TopicTable(TableIdentity("t", TOPIC_ID, "topics.t"), 1, "me", settings, 1)
        self.now_ms = 0
        self.snapshots: tuple[TableSnapshot, ...] = ()
        self.refs: tuple[TableRef, ...] = ()

    def gets(self, event: TableEvent, after_ms: int = 0) -> object:
        self.now_ms += after_ms
        return self.machine.handle(event, self.now_ms, self.now_ms)

    def committed(self, effect: object) -> Committed:
        assert isinstance(effect, Commit)
        number = len(self.snapshots) + 1
        snapshot = TableSnapshot(
            number * 100, number, self.now_ms, TOPIC_ID, 1, "me", dict(effect.end_offsets)
        )
        self.snapshots = (*self.snapshots, snapshot)
        return Committed(effect, snapshot)

    def round(self, found: Manifest, after_ms: int = 0) -> object:
        """Return the first effect after table and manifests were read."""
        newest = self.snapshots[-1] if self.snapshots else None
        known = None if newest is None else newest.snapshot_id
        assert self.gets(Ticked(), after_ms) == ReadTable(known)
        assert self.gets(TableRead(self.snapshots, newest, None, refs=self.refs)) == ReadManifests(1)
        return self.gets(ManifestsRead({0: found}))

    def begun(self, *segments: RemoteSegment) -> None:
        """Bring the table to these segments, and through its first cleaning."""
        effect = self.round(manifest(*segments))
        assert isinstance(effect, ReadFooters)
        commit = self.gets(FootersRead({each.name: file_of(each) for each in segments}))
        assert self.gets(self.committed(commit)) == ListObjects()
        assert self.gets(ObjectsListed(())) is None


def test_first_round_adds_the_segments_of_the_manifests() -> None:
    """All in one snapshot, whose summary has the end of each partition."""
    play = Play()
    windows = (Window(A, 0, 0, 10), Window(B, 0, 10, 20))
    assert play.round(manifest(A, B)) == ReadFooters(windows)
    commit = play.gets(FootersRead({A.name: file_of(A), B.name: file_of(B)}))
    assert commit == Commit(None, (file_of(A), file_of(B)), (), False, ((0, 20),), 1, "me")
    play.gets(play.committed(commit))
    assert play.machine.status.committed == {0: 20}
    assert play.machine.status.lag == 0


def test_next_round_begins_after_the_commit_interval() -> None:
    """A catalogue is spared more commits than configured."""
    play = Play()
    play.begun(A)
    assert play.gets(Ticked(), INTERVAL_MS - 1) is None
    assert play.gets(Ticked(), 1) == ReadTable(100)


def test_merged_segment_replaces_its_parts_in_one_commit() -> None:
    """A snapshot between both would have records twice, or lack them."""
    play = Play()
    play.begun(A, B)
    play.round(manifest(MERGED, unreferenced=[A, B]), INTERVAL_MS)
    commit = play.gets(FootersRead({MERGED.name: file_of(MERGED)}))
    assert commit == Commit(
        100, (file_of(MERGED),), (file_of(A).live, file_of(B).live), True, ((0, 20),), 1, "me"
    )


def test_parts_of_a_merged_segment_are_deleted_once_older_snapshots_have_expired() -> None:
    """Queries on older snapshots read them."""
    play = Play()
    play.begun(A, B)
    found = manifest(MERGED, unreferenced=[A, B])
    play.round(found, INTERVAL_MS)
    commit = play.gets(FootersRead({MERGED.name: file_of(MERGED)}))
    assert play.gets(play.committed(commit)) is None
    assert play.round(found, RETENTION_MS) is None
    assert play.round(found, INTERVAL_MS) == ExpireSnapshots((100,))
    assert play.gets(SnapshotsExpired((100,))) == DeleteObjects((A.name, B.name))


def test_snapshot_that_was_the_newest_for_long_expires_its_retention_after_the_next_one() -> None:
    """A query that began a second before the next commit reads it, however old it is by then."""
    play = Play()
    play.begun(A)
    play.round(manifest(A, B), 10 * RETENTION_MS)
    commit = play.gets(FootersRead({B.name: file_of(B)}))
    assert play.gets(play.committed(commit)) is None
    assert play.round(manifest(A, B), RETENTION_MS) is None
    assert play.round(manifest(A, B), INTERVAL_MS) == ExpireSnapshots((100,))


def test_snapshot_that_was_the_newest_again_expires_its_retention_after_that() -> None:
    """After a rollback queries read it again; the snapshot that was rolled back is no successor."""
    play = Play()
    play.begun(A)
    others = TableSnapshot(150, 2, 0, description="overwrite by spark")
    ours = play.snapshots[0]
    play.gets(Ticked(), 10 * RETENTION_MS)
    assert play.gets(TableRead((ours, others), ours, None)) == ReadManifests(1)
    assert play.gets(ManifestsRead({0: manifest(A, B)})) == ReadFooters((Window(B, 0, 10, 20),))
    commit = play.gets(FootersRead({B.name: file_of(B)}))
    play.snapshots = (ours, others)
    effect = play.gets(play.committed(commit))
    assert effect is None
    assert play.round(manifest(A, B), RETENTION_MS) is None
    assert play.round(manifest(A, B), INTERVAL_MS) == ExpireSnapshots((100, 150))


def tagged(play: Play, *refs: TableRef) -> object:
    """Merge the parts of the table, and let the snapshot of before get these refs; return the next effect."""
    play.begun(A, B)
    found = manifest(MERGED, unreferenced=[A, B])
    play.round(found, INTERVAL_MS)
    play.gets(play.committed(play.gets(FootersRead({MERGED.name: file_of(MERGED)}))))
    play.refs = refs
    return play.round(found, RETENTION_MS + 1)


def test_files_of_a_tags_snapshot_stay_and_the_rest_goes() -> None:
    """The tag was made to read that snapshot later, and says nothing of other files."""
    play = Play()
    assert tagged(play, TableRef("audit", 100)) == FindHeld((A.name, B.name), (100,))
    effect = play.gets(HeldFound((HeldFile(A.name, 100, 7),)))
    assert effect == DeleteObjects((B.name,))
    assert play.gets(ObjectsDeleted((B.name,))) is None
    assert play.machine.status.held == (RefFiles("audit", 1, 7),)
    play.refs = ()
    found = manifest(MERGED, unreferenced=[A])
    assert play.round(found, RETENTION_MS) == ExpireSnapshots((100,))
    assert play.gets(SnapshotsExpired((100,))) == DeleteObjects((A.name,))
    assert play.machine.status.held == ()


def test_files_go_while_a_branch_gets_commits_of_another_writer() -> None:
    """A branch that gets commits more often than snapshots expire has one that is about to expire always."""
    play = Play()
    play.begun(A, B)
    found = manifest(MERGED, unreferenced=[A, B])
    play.round(found, INTERVAL_MS)
    play.gets(play.committed(play.gets(FootersRead({MERGED.name: file_of(MERGED)}))))
    assert play.gets(Ticked(), RETENTION_MS + 1) == ReadTable(200)
    ours = play.snapshots[-1]
    former = TableSnapshot(300, 3, play.now_ms, description="append by spark", parent_id=200)
    head = TableSnapshot(400, 4, play.now_ms, description="append by spark", parent_id=300)
    refs = (TableRef("dev", 400, True),)
    play.gets(TableRead((*play.snapshots, former, head), ours, None, refs=refs))
    assert play.gets(ManifestsRead({0: found})) == ExpireSnapshots((100,), (), refs)
    assert play.gets(SnapshotsExpired((100,))) == FindHeld((A.name, B.name), (400, 300))
    assert play.gets(HeldFound((HeldFile(A.name, 400, 7),))) == DeleteObjects((B.name,))
    assert play.machine.status.held == (RefFiles("dev", 1, 7),)


def test_tag_goes_when_it_is_as_old_as_it_may_be() -> None:
    """Iceberg's other engines leave that to the writer of the table."""
    play = Play()
    ref = TableRef("audit", 100, max_ref_age_ms=RETENTION_MS // 2)
    assert tagged(play, ref) == ExpireSnapshots((100,), ("audit",), (ref,))


def test_refs_of_a_moment_ago_are_looked_at_before_snapshots_expire() -> None:
    """A new branch can be given some of these snapshots."""
    play = Play()
    assert tagged(play) == ExpireSnapshots((100,))
    assert play.gets(CommitStale()) == ReadTable(200)


def test_rolled_back_snapshot_expires_although_none_comes_after_it() -> None:
    """Otherwise it would keep its files for ever."""
    play = Play()
    play.begun(A)
    others = TableSnapshot(150, 2, play.now_ms, description="overwrite by spark", parent_id=100)
    ours = play.snapshots[0]
    for after_ms, effect in ((INTERVAL_MS, None), (RETENTION_MS + 1, ExpireSnapshots((150,)))):
        play.gets(Ticked(), after_ms)
        assert play.gets(TableRead((ours, others), ours, None)) == ReadManifests(1)
        assert play.gets(ManifestsRead({0: manifest(A)})) == effect


def test_only_old_objects_of_other_writers_are_collected() -> None:
    """A young one may be in the next snapshot of a branch, and metadata in the next version of the table."""
    play = Play()
    effect = play.round(manifest(A))
    assert isinstance(effect, ReadFooters)
    assert play.gets(play.committed(play.gets(FootersRead({A.name: file_of(A)})))) == ListObjects()
    play.now_ms = OTHERS_GRACE_MS + 10
    prefix = table_prefix("t", TOPIC_ID)
    names = ("data/old.parquet", "data/young.parquet", "metadata/old.avro", "metadata/in-use.avro")
    listed = tuple(ListedObject(prefix + name, 1, 10 if "young" in name else 9) for name in names)
    deleted = (f"{prefix}data/old.parquet", f"{prefix}metadata/old.avro")
    assert play.gets(ObjectsListed(listed, frozenset(["in-use.avro"]))) == DeleteObjects(deleted)


def test_commit_without_an_answer_is_looked_for_before_another_one() -> None:
    """It may have happened: a second one beside it would have the records twice."""
    play = Play()
    play.round(manifest(A))
    commit = play.gets(FootersRead({A.name: file_of(A)}))
    landed = play.committed(commit).snapshot
    assert play.gets(EffectFailed("timed out")) is None
    assert play.machine.status.problem == "timed out"
    assert play.gets(Ticked(), 1_000) == ReadTable(None)
    assert play.gets(TableRead((landed,), landed, (file_of(A).live,))) == ReadManifests(1)
    assert play.gets(ManifestsRead({0: manifest(A)})) == ListObjects()


def test_nothing_is_deleted_while_a_commit_without_an_answer_can_still_succeed() -> None:
    """It would bring a file into the table that is gone: another commit has to come between."""
    play = Play()
    play.round(manifest(A))
    play.gets(FootersRead({A.name: file_of(A)}))
    play.gets(EffectFailed("timed out"))
    assert play.gets(Ticked(), 1_000) == ReadTable(None)
    play.gets(TableRead((), None, ()))
    effect = play.gets(ManifestsRead({0: manifest(unreferenced=[A], start=10)}))
    assert effect == Commit(None, (), (), False, ((0, 10),), 1, "me")
    assert play.gets(play.committed(effect)) == DeleteObjects((A.name,))


def test_stale_commit_is_decided_again_from_the_table() -> None:
    """Another driver has committed: its files are there already."""
    play = Play()
    play.round(manifest(A))
    play.gets(FootersRead({A.name: file_of(A)}))
    assert play.gets(CommitStale()) == ReadTable(None)


def test_new_committer_claims_the_table_before_it_deletes() -> None:
    """A former one's commit that is still under way could bring deleted files back otherwise."""
    play = Play()
    theirs = TableSnapshot(7, 1, 0, TOPIC_ID, 1, "former", {0: 10})
    assert play.gets(Ticked()) == ReadTable(None)
    play.gets(TableRead((theirs,), theirs, (file_of(A).live,)))
    assert play.gets(ManifestsRead({0: manifest(A)})) == Commit(7, (), (), False, ((0, 10),), 1, "me")


def test_snapshot_of_another_writer_stops_commits() -> None:
    """Its rows are somebody's intention; the next snapshot of the topic would undo or double it."""
    play = Play()
    play.begun(A)
    others = TableSnapshot(8, 2, 0, description="overwrite by spark")
    assert play.gets(Ticked(), INTERVAL_MS) == ReadTable(100)
    assert play.gets(TableRead((*play.snapshots, others), others, ())) is None
    assert "another writer's (overwrite by spark)" in (play.machine.status.problem or "")


def test_snapshot_of_a_later_application_ends_the_committer() -> None:
    """The other one has the cluster: what this one knows of the topic is not so any more."""
    play = Play()
    later = TableSnapshot(9, 1, 0, TOPIC_ID, 2, "later", {})
    play.gets(Ticked())
    assert play.gets(TableRead((later,), later, ())) is None
    assert play.machine.ended is not None
    assert play.gets(Ticked(), INTERVAL_MS) is None


def test_segment_that_counts_in_part_comes_as_a_piece() -> None:
    """An unclean election has cut it, and its object has records that the topic has not."""
    play = Play()
    part = replace(A, end_offset=5)
    window = Window(part, 0, 0, 5)
    assert play.round(manifest(part)) == ReadFooters((window,))
    assert play.gets(FootersRead({A.name: file_of(A)})) == WritePieces(window)
    piece = replace(file_of(A), name="tables/piece", last_offset=4)
    assert play.gets(PiecesWritten(window, (piece,))) == Commit(None, (piece,), (), False, ((0, 5),), 1, "me")


def test_table_keeps_rows_that_the_topic_has_left() -> None:
    """With retention `forever` retention of the topic is nothing to its table."""
    for retention, removed in ((Retention.TOPIC, (file_of(A).live,)), (Retention.FOREVER, None)):
        play = Play(retention=retention)
        play.begun(A, B)
        effect = play.round(manifest(B, unreferenced=[A], start=10), INTERVAL_MS)
        assert (effect.removed if isinstance(effect, Commit) else None) == removed


def test_nothing_is_deleted_beside_a_table_that_began_again_and_keeps_rows() -> None:
    """The table before may be the only one that names what the topic has left."""
    for retention, deleted in ((Retention.TOPIC, DeleteObjects((A.name,))), (Retention.FOREVER, None)):
        play = Play(retention=retention)
        assert play.gets(Ticked()) == ReadTable(None)
        assert play.gets(TableRead((), None, (), began_again=True)) == ReadManifests(1)
        assert isinstance(play.gets(ManifestsRead({0: manifest(B, unreferenced=[A], start=10)})), ReadFooters)
        commit = play.gets(FootersRead({B.name: file_of(B)}))
        assert play.gets(play.committed(commit)) == deleted


def test_rows_of_a_deleted_topic_leave_before_its_files() -> None:
    """The last snapshot has none, and the files stay until no older one is left."""
    play = Play()
    play.begun(A)
    play.machine.note(TopicDeleted())
    assert play.gets(Ticked()) == ReadTable(100)
    commit = play.gets(TableRead(play.snapshots, play.snapshots[-1], None))
    assert commit == Commit(100, (), (file_of(A).live,), False, ((0, 10),), 1, "me")
    assert play.gets(play.committed(commit)) is None
    assert not play.machine.is_finished
    assert play.gets(Ticked(), RETENTION_MS + 1) == ReadTable(200)
    assert play.gets(TableRead(play.snapshots, play.snapshots[-1], None)) == ExpireSnapshots((100,))
    assert play.gets(SnapshotsExpired((100,))) is None
    assert play.machine.is_finished


def test_steps_of_a_commit_touch_no_other_files() -> None:
    """A catalogue of years has 100,000 files: to go through them after every effect takes minutes a round."""
    segments = [segment(number, 10 * number, 10 * number + 10) for number in range(30_000)]
    missing = segments[-300:]
    play = Play()
    play.begun(A)
    newest = play.snapshots[-1]
    files = tuple(file_of(each).live for each in segments[:-300])
    assert play.gets(Ticked(), INTERVAL_MS) == ReadTable(newest.snapshot_id)
    assert play.gets(TableRead(play.snapshots, newest, files)) == ReadManifests(1)
    found = {0: manifest(*segments)}

    def seconds_of(event: TableEvent) -> tuple[object, float]:
        begun_s = time.thread_time()
        return play.gets(event), time.thread_time() - begun_s

    effect, compared_s = seconds_of(ManifestsRead(found))
    steps_s = 0.0
    for start in range(0, 300, MOST_FOOTERS):
        assert isinstance(effect, ReadFooters)
        some = missing[start : start + MOST_FOOTERS]
        effect, step_s = seconds_of(FootersRead({each.name: file_of(each) for each in some}))
        steps_s += step_s
    effect, step_s = seconds_of(play.committed(effect))
    assert effect is None
    play.gets(Ticked(), INTERVAL_MS)
    assert play.gets(TableRead(play.snapshots, play.snapshots[-1], None)) == ReadManifests(1)
    effect, unchanged_s = seconds_of(ManifestsRead(found))
    assert effect is None
    assert steps_s + step_s + unchanged_s < compared_s


def test_table_is_level_when_a_round_has_nothing_left_to_commit() -> None:
    """Its lag in time counts from there: of a catalogue that is away nothing else is known."""
    play = Play()
    effect = play.round(manifest(A), after_ms=1_000)
    assert play.machine.status.level_ms == 1_000
    assert isinstance(effect, ReadFooters)
    play.gets(EffectFailed("503"), after_ms=5_000)
    assert play.machine.status.level_ms == 1_000
    effect = play.round(manifest(A), after_ms=30_000)
    commit = play.gets(FootersRead({A.name: file_of(A)}), after_ms=500)
    play.gets(play.committed(commit), after_ms=500)
    status = play.machine.status
    assert (status.level_ms, status.files, status.lag) == (36_000, 1, 0)


def test_status_does_not_count_what_refs_keep() -> None:
    """The loop asks for it every second, while a thread may change the files: it has them counted."""
    play = Play()
    tagged(play, TableRef("audit", 100))
    play.gets(HeldFound((HeldFile(A.name, 100, 7),)))
    assert play.machine.status.held == (RefFiles("audit", 1, 7),)
    assert play.machine.status.held is play.machine.status.held


def test_long_deletion_goes_on_after_another_look_at_the_manifests() -> None:
    """A thousand batches take an hour, in which no new record would come into the table."""
    play = Play()
    play.begun(A, B)
    given_up = [segment(number, 0, 1) for number in range(10, 10 + 2 * MOST_DELETED_AT_ONCE + 1)]
    found = manifest(A, B, unreferenced=given_up)
    names = tuple(each.name for each in given_up)
    first, second, last = names[:100], names[100:200], names[200:]
    assert play.round(found, INTERVAL_MS) == DeleteObjects(first)
    assert play.gets(ObjectsDeleted(first), INTERVAL_MS - 1) == DeleteObjects(second)
    assert play.gets(ObjectsDeleted(second), 1) == ReadTable(100)
    assert play.gets(TableRead(play.snapshots, play.snapshots[-1], None)) == ReadManifests(1)
    assert play.gets(ManifestsRead({0: found})) == DeleteObjects(last)
