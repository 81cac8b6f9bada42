"""Tables under faults: committers that crash and follow each other, a store and a catalogue that fail.

    world = run_seed(7)

A seed decides everything. Committers are real `TopicTable`s; the tier changes beside them as leaders change
it. At the end all faults stop, and the table must be what the topic is. `python -m tests.simulation.tables
--seed 7` shows a run.
"""

import random
from dataclasses import dataclass, field
from typing import Final

from sparklog.driver.controller.tables.machine.events import (
    Commit,
    CommitStale,
    Committed,
    DeleteObjects,
    EffectFailed,
    ExpireSnapshots,
    FindHeld,
    FootersRead,
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
    TableEffect,
    TableEvent,
    TableIdentity,
    TableRead,
    TableSettings,
    TableSnapshot,
    Ticked,
    TopicDeleted,
    WritePieces,
)
from sparklog.driver.controller.tables.machine.next_commit import partition_value
from sparklog.driver.controller.tables.machine.snapshot_refs import MAIN, TableRef
from sparklog.driver.controller.tables.machine.table_files import (
    TABLES,
    LiveFile,
    table_prefix,
)
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from sparklog.node.remote_log.machine.names import SEGMENTS, leader_epoch_of
from sparklog.node.remote_log.object_store import ListedObject
from tests.simulation.tables.catalogue import SimulatedCatalogue, Stored
from tests.simulation.tables.stored_files import StoredFiles
from tests.simulation.tables.tier import TOPIC, TOPIC_ID, SimulatedTier, StoredRows, ViolationError

STEPS: Final = 900
PARTITIONS: Final = 2
COMMIT_INTERVAL_MS: Final = 1_000
SNAPSHOT_RETENTION_MS: Final = 20_000
LISTING_INTERVAL_MS: Final = 15_000
MOST_FILES: Final = 3
OTHERS_GRACE_MS: Final = 30_000
QUIET_MS: Final = 200_000
BRANCH_COMMIT_INTERVAL_MS: Final = 6_000
OTHERS: Final = f"{table_prefix(TOPIC, TOPIC_ID)}data/others"
IDENTITY: Final = TableIdentity(TOPIC, TOPIC_ID, "topics.t")


@dataclass
class Committer:
    """One controller's machine, and the answer that it waits for."""

    machine: TopicTable
    epoch: int
    effect: TableEffect | None = None


@dataclass
class Deleting:
    """Deletions of a committer that passed the look at the owner, and may come late."""

    names: list[str]


@dataclass
class World:
    seed: int
    trace: list[str] = field(default_factory=list)
    faults: int = 0
    crashes: int = 0
    deletions: int = 0
    violation: ViolationError | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.partitioned_by = self.random.choice([PartitionedBy.NONE, PartitionedBy.DAY])
        self.retention = self.random.choice(list(Retention))
        self.tier = SimulatedTier(self.random, PARTITIONS, mixed_days=self.random.random() < 0.5)
        self.catalogue = SimulatedCatalogue(self.random, self._landed)
        self.changes = self.random.choice([0.3, 3, 3])
        """How often leaders change the tier: a slow one has rounds without a commit."""
        self.stored = StoredFiles(self.tier, self.catalogue, self.partitioned_by)
        self.now_ms = 1
        self.deleting: list[Deleting] = []
        self.zombies: list[Committer] = []
        self.others: dict[str, int] = {}
        """Files of another writer, and when they were written."""
        self.ever: set[tuple[int, int, int]] = set()
        """Records that some snapshot had."""
        self.has_busy_branch = self.seed % 2 == 0
        """Whether another writer goes on when all faults have ended."""
        self.next_branch_commit_ms = 0
        self.is_faulty = True
        self.is_topic_deleted = False
        self.machines = 0
        self.committer = self._new_committer()

    def _new_committer(self) -> Committer:
        self.machines += 1
        settings = TableSettings(
            COMMIT_INTERVAL_MS, SNAPSHOT_RETENTION_MS, self.retention, self.partitioned_by
        )
        machine = TopicTable(
            IDENTITY,
            self.tier.owner_epoch,
            str(self.machines),
            settings,
            PARTITIONS,
            most_files=MOST_FILES,
            listing_interval_ms=LISTING_INTERVAL_MS,
            others_grace_ms=OTHERS_GRACE_MS,
        )
        if self.is_topic_deleted:
            machine.note(TopicDeleted())
        return Committer(machine, self.tier.owner_epoch)

    # --- invariants -----------------------------------------------------------------------------

    def _rows_of(self, stored: Stored) -> list[tuple[int, int, int]]:
        rows = []
        for name in stored.files:
            found = self.tier.objects.get(name)
            if found is None:
                raise ViolationError(
                    "FilesAreThere", f"snapshot {stored.snapshot.sequence_number} names {name}"
                )
            rows += [(found.partition, offset, lineage) for offset, _, lineage in found.rows]
        return rows

    def _landed(self, stored: Stored) -> None:
        rows = self._rows_of(stored)
        if len({row[:2] for row in rows}) != len(rows):
            raise ViolationError("OnceInEachSnapshot", f"{sorted(rows)}")
        self.ever |= set(rows)
        for name in stored.files:
            days = {partition_value(self.partitioned_by, time) for _, time, _ in self.tier.objects[name].rows}
            if len(days) > 1:
                raise ViolationError("OneDayEach", name)

    def _check_files(self) -> None:
        for stored in self.catalogue.snapshots:
            self._rows_of(stored)
        self._check_readers()

    def _check_readers(self) -> None:
        """Let queries that began on the newest snapshot of their time have it until the retention ends."""
        known = {stored.snapshot.snapshot_id for stored in self.catalogue.snapshots}
        for until_ms, stored in reversed(self.catalogue.superseded):
            if until_ms < self.now_ms - SNAPSHOT_RETENTION_MS:
                return
            if stored.snapshot.snapshot_id not in known:
                number = stored.snapshot.sequence_number
                raise ViolationError("ReadersKeepTheirs", f"{number} was the newest until {until_ms}")

    # --- steps ----------------------------------------------------------------------------------

    def run(self) -> "World":
        try:
            for _ in range(STEPS):
                self._step()
            self._heal()
        except ViolationError as violation:
            self.violation = violation
        return self

    def _step(self) -> None:
        self.now_ms += self.random.randint(1, 400)
        self.catalogue.now_ms = self.now_ms
        action = self.random.choices(
            [
                self._change_tier,
                self._advance,
                self._advance_zombie,
                self._delete_one,
                self.catalogue.land_one_late,
                self._crash,
                self._replace_application,
                self._intrude,
                self._change_refs,
                self._write_others,
                self._commit_others,
            ],
            [self.changes, 12, 2, 2, 0.2, 0.3, 0.1, 0.05, 0.15, 0.1, 0.1],
        )[0]
        action()

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.now_ms} {what}")

    def _change_tier(self) -> None:
        self._note(self.tier.change())

    def _intrude(self) -> None:
        if self.random.random() < 0.5:
            self.catalogue.roll_back()
        else:
            self.catalogue.intrude()
        self._note("another writer, or its end")

    def _change_refs(self) -> None:
        if self.random.random() < 0.5:
            self.catalogue.add_ref()
        else:
            self.catalogue.drop_ref()
        self._note(f"refs are {list(self.catalogue.refs.values())}")

    def _write_others(self) -> None:
        name = f"{OTHERS}-{self.random.getrandbits(32):08x}.parquet"
        self.tier.objects[name] = StoredRows(0, ())
        self.others[name] = self.now_ms
        self._note(f"another writer's {name}")

    def _commit_others(self) -> None:
        young = [name for name, at_ms in self.others.items() if at_ms > self.now_ms - OTHERS_GRACE_MS]
        if young:
            name = self.random.choice(young)
            is_done = self.catalogue.commit_to_branch([LiveFile(name, 0, 0, 0)])
            self._note(f"{name} committed to a branch: {is_done}")

    def _crash(self) -> None:
        """A controller's process dies: whatever it had under way happens, happens late, or never."""
        self.crashes += 1
        self._leave_under_way(self.committer)
        self.committer = self._new_committer()
        self._note("crash")
        if self.random.random() < 0.3:
            # Of brokers, too: what the commit under way adds may be in no manifest any more.
            self.tier.lose_newest()
            self._note("an unclean election")

    def _replace_application(self) -> None:
        """Another application takes the store; the one before lives on for a while."""
        self.zombies.append(self.committer)
        self.tier.owner_epoch += 1
        self.committer = self._new_committer()
        self._note("another application")

    def _leave_under_way(self, committer: Committer) -> None:
        match committer.effect:
            case Commit() as commit:
                self.catalogue.late.append(commit)
            case DeleteObjects(names) if committer.epoch == self.tier.owner_epoch:
                self.deleting.append(Deleting(list(names)))
            case WritePieces(window) if self.random.random() < 0.5:
                self.stored.write(window)
            case _:
                pass

    def _advance_zombie(self) -> None:
        if self.zombies:
            self._pass_on(self.random.choice(self.zombies))

    def _advance(self) -> None:
        self._pass_on(self.committer)

    def _pass_on(self, committer: Committer) -> None:
        event: TableEvent = (
            Ticked() if committer.effect is None else self._answer(committer, committer.effect)
        )
        committer.effect = committer.machine.handle(event, self.now_ms, self.now_ms)
        self._note(f"{committer.machine.committer} {type(event).__name__} -> {committer.effect}")

    def _delete_one(self) -> None:
        if self.deleting:
            batch = self.random.choice(self.deleting)
            self._delete(batch.names.pop())
            if not batch.names:
                self.deleting.remove(batch)

    def _delete(self, name: str) -> None:
        if name in self.others and self.others[name] > self.now_ms - OTHERS_GRACE_MS:
            raise ViolationError("OthersFilesStay", f"{name} may be in the next snapshot of a branch")
        self.deletions += self.tier.objects.pop(name, None) is not None
        for manifest in self.tier.manifests.values():
            if not self.is_topic_deleted and name in {segment.name for segment in manifest.segments}:
                raise ViolationError("NamedIsNeverDeleted", f"a manifest names {name}")
        self._check_files()

    # --- answers --------------------------------------------------------------------------------

    def _answer(self, committer: Committer, effect: TableEffect) -> TableEvent:
        if self.is_faulty and self.random.random() < 0.12:
            self.faults += 1
            self._leave_under_way(committer)
            return EffectFailed("503")
        match effect:
            case ReadTable(known):
                newest = self.catalogue.newest
                snapshot = None if newest is None else newest.snapshot
                is_known = snapshot is not None and snapshot.snapshot_id == known
                files = () if newest is None else tuple(newest.files.values())
                snapshots = tuple(each.snapshot for each in self.catalogue.snapshots)
                refs = (*self.catalogue.refs.values(), *main_of(snapshot))
                return TableRead(snapshots, snapshot, None if is_known else files, refs=refs)
            case ReadManifests():
                return ManifestsRead(dict(self.tier.manifests))
            case ReadFooters(windows):
                return FootersRead(
                    {
                        window.segment.name: self.stored.file(window.segment.name)
                        for window in windows
                        if window.segment.name in self.tier.objects
                    }
                )
            case WritePieces(window):
                if window.segment.name not in self.tier.objects:
                    return EffectFailed("404")
                return PiecesWritten(window, self.stored.write(window))
            case Commit():
                landed = self.catalogue.commit(effect)
                return CommitStale() if landed is None else Committed(effect, landed)
            case ExpireSnapshots(snapshot_ids):
                if not self.catalogue.expire(effect):
                    return CommitStale()
                self._check_readers()
                left = {each.snapshot.snapshot_id for each in self.catalogue.snapshots}
                return SnapshotsExpired(tuple(each for each in snapshot_ids if each not in left))
            case DeleteObjects(names):
                if committer.epoch != self.tier.owner_epoch:
                    return EffectFailed("another application has taken the store")
                for name in names:
                    self._delete(name)
                return ObjectsDeleted(names)
            case ListObjects():
                return ObjectsListed(
                    tuple(ListedObject(name, 1, self.others.get(name, 0)) for name in self.tier.objects)
                )
            case FindHeld():
                return HeldFound(self.stored.held(effect))

    # --- the end --------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Let all faults end, and compare the table with the topic; then delete the topic."""
        self.is_faulty = False
        while self.catalogue.late:
            self.catalogue.land_one_late()
        while self.deleting:
            self._delete_one()
        self.catalogue.roll_back()
        self._settle()
        self._compare()
        if self.random.random() < 0.5:
            self._drop_refs()
            self._settle()
            self._compare()
        self.is_topic_deleted = True
        self.committer.machine.note(TopicDeleted())
        self._settle()
        if self.catalogue.refs:
            self._compare_held()
            self._drop_refs()
            self._settle()
        self._compare_deleted()

    def _drop_refs(self) -> None:
        while self.catalogue.refs:
            self.catalogue.drop_ref()

    def _compare_held(self) -> None:
        """Compare what is left of a deleted topic whose table has branches and tags."""
        if self.retention is Retention.FOREVER:
            return
        named = {name for stored in self.catalogue.snapshots for name in stored.files}
        if not self.committer.machine.is_finished and (left := self.tier.objects.keys() - named):
            raise ViolationError("NothingIsLeft", f"{sorted(left)}")

    def _settle(self) -> None:
        end_ms = self.now_ms + QUIET_MS
        while self.now_ms < end_ms and not self.committer.machine.is_finished:
            self.now_ms += 200
            self.catalogue.now_ms = self.now_ms
            if self.has_busy_branch and self.now_ms >= self.next_branch_commit_ms:
                self.next_branch_commit_ms = self.now_ms + BRANCH_COMMIT_INTERVAL_MS
                self.catalogue.commit_to_branch()
            for committer in [*self.zombies, self.committer]:
                self._pass_on(committer)

    def _compare(self) -> None:
        problem = self.committer.machine.status.problem
        if problem is not None:
            raise ViolationError("TableGoesOn", problem)
        newest = self.catalogue.newest
        rows = set() if newest is None else set(self._rows_of(newest))
        forever = self.retention is Retention.FOREVER
        topic = set[tuple[int, int, int]]().union(
            *(self.tier.rows(partition, from_log_start=not forever) for partition in self.tier.manifests)
        )
        if not forever and rows != topic:
            raise ViolationError(
                "TableIsTheTopic", f"more {sorted(rows - topic)}, less {sorted(topic - rows)}"
            )
        if forever and not topic <= rows:
            raise ViolationError("TableIsTheTopic", f"less {sorted(topic - rows)}")
        if forever and (lost := self.ever - rows - self.tier.lost_to_cuts):
            raise ViolationError("KeptForever", f"{sorted(lost)}")
        self._compare_objects()

    def _compare_objects(self) -> None:
        """Look for objects that nothing names; a segment of the present leader may be named soon."""
        if self.catalogue.newest is None:
            return
        manifests = self.tier.manifests
        named = {segment.name for each in manifests.values() for segment in each.segments}
        for stored in self.catalogue.snapshots:
            named |= stored.files.keys()
        given_up = {name for each in manifests.values() for name in each.unreferenced}
        left = {
            name
            for name in self.tier.objects.keys() - named
            if name in given_up
            or not name.startswith(SEGMENTS)
            or (leader_epoch_of(name) or 0) < manifests[int(name.split("/")[-2])].leader_epoch
        }
        if left:
            raise ViolationError("NothingIsLeft", f"{sorted(left)}")

    def _compare_deleted(self) -> None:
        if not self.committer.machine.is_finished:
            raise ViolationError("DeletionEnds", str(self.committer.machine.status))
        newest = self.catalogue.newest
        if self.retention is Retention.TOPIC:
            if newest is not None and newest.files:
                raise ViolationError("DeletionEnds", "the table has rows of a deleted topic")
            if len(self.catalogue.snapshots) > 1:
                raise ViolationError("DeletionEnds", "an old snapshot has files of a deleted topic")
        elif newest is not None:
            self._rows_of(newest)


def main_of(newest: TableSnapshot | None) -> tuple[TableRef, ...]:
    return () if newest is None else (TableRef(MAIN, newest.snapshot_id, True),)


def run_seed(seed: int) -> World:
    return World(seed).run()


def pieces(world: World) -> int:
    """Return how many pieces of segments there are in the end."""
    return sum(name.startswith(TABLES) for name in world.tier.objects)
