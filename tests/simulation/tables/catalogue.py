"""A catalogue with one table: compare-and-swap on the newest snapshot, branches, commits that land late."""

import random
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field, replace

from sparklog.driver.controller.tables.machine.events import Commit, ExpireSnapshots, TableSnapshot
from sparklog.driver.controller.tables.machine.snapshot_refs import TableRef
from sparklog.driver.controller.tables.machine.table_files import LiveFile
from tests.simulation.tables.tier import TOPIC_ID, ViolationError


@dataclass
class Stored:
    snapshot: TableSnapshot
    files: dict[str, LiveFile]


@dataclass
class SimulatedCatalogue:
    randomness: random.Random
    on_commit: Callable[[Stored], None]
    """Called with each snapshot that lands."""
    snapshots: list[Stored] = field(default_factory=list)
    """That have not expired, the oldest first."""
    late: list[Commit] = field(default_factory=list)
    """Commits without an answer that may land yet."""
    superseded: list[tuple[int, Stored]] = field(default_factory=list)
    """Snapshots of the topic that were the newest, and until when."""
    refs: dict[str, TableRef] = field(default_factory=dict)
    """Branches and tags but for main."""
    newest: Stored | None = None
    commits: int = 0
    now_ms: int = 0

    def stored(self, snapshot_id: int | None) -> Stored | None:
        return next((each for each in self.snapshots if each.snapshot.snapshot_id == snapshot_id), None)

    def commit(self, effect: Commit) -> TableSnapshot | None:
        """Land a commit; None if it is stale."""
        newest = self.newest
        if (None if newest is None else newest.snapshot.snapshot_id) != effect.parent_id:
            return None
        if newest is not None and newest.snapshot.topic_id is None:
            raise ViolationError("OthersAreRespected", f"a commit on top of snapshot {effect.parent_id}")
        if newest is not None and newest.snapshot.owner_epoch > effect.owner_epoch:
            raise ViolationError("DeposedChangesNothing", f"a commit of owner epoch {effect.owner_epoch}")
        files = {} if newest is None else dict(newest.files)
        for removed in effect.removed:
            if removed.name not in files:
                raise ViolationError("CommitsFit", f"a commit removes {removed.name}, which is not there")
            del files[removed.name]
        for added in effect.added:
            if added.name in files:
                raise ViolationError("CommitsFit", f"a commit adds {added.name}, which is there")
            files[added.name] = added.live
        self.commits += 1
        snapshot = TableSnapshot(
            self.randomness.getrandbits(62),
            self.commits,
            self.now_ms,
            TOPIC_ID,
            effect.owner_epoch,
            effect.committer,
            dict(effect.end_offsets),
            parent_id=effect.parent_id,
        )
        stored = Stored(snapshot, files)
        self._supersede()
        self.snapshots.append(stored)
        self.newest = stored
        self.on_commit(stored)
        return snapshot

    def _supersede(self) -> None:
        if self.newest is not None and self.newest.snapshot.topic_id is not None:
            self.superseded.append((self.now_ms, self.newest))

    def land_one_late(self) -> None:
        if self.late:
            self.commit(self.late.pop(self.randomness.randrange(len(self.late))))

    def expire(self, effect: ExpireSnapshots) -> bool:
        """Take snapshots out; the parent of a snapshot that stays may be unknown from then on."""
        if set(self.refs.values()) != set(effect.known_refs):
            return False
        for name in effect.ref_names:
            ref = self.refs.pop(name)
            age_ms = self.now_ms - self._made_ms(ref.snapshot_id)
            if ref.max_ref_age_ms is None or age_ms <= ref.max_ref_age_ms:
                raise ViolationError("RefsKeepTheirs", f"{ref} goes")
        heads = {ref.snapshot_id for ref in self.refs.values()}
        kept = heads | {self.newest.snapshot.snapshot_id} if self.newest else heads
        gone = set(effect.snapshot_ids) - kept
        self._check_history(gone)
        self.snapshots = [
            Stored(replace(each.snapshot, parent_id=None), each.files)
            if each.snapshot.parent_id in gone and each is not self.newest
            else each
            for each in self.snapshots
            if each.snapshot.snapshot_id not in gone
        ]
        return True

    def _made_ms(self, snapshot_id: int) -> int:
        stored = self.stored(snapshot_id)
        assert stored is not None, "a ref keeps its snapshot"
        return stored.snapshot.timestamp_ms

    def _check_history(self, gone: Set[int]) -> None:
        """Check that branches keep as many snapshots as they are given."""
        for ref in self.refs.values():
            stored = self.stored(ref.snapshot_id)
            for _ in range(1, ref.min_snapshots_to_keep or 1):
                stored = None if stored is None else self.stored(stored.snapshot.parent_id)
                if stored is not None and stored.snapshot.snapshot_id in gone:
                    number = stored.snapshot.sequence_number
                    raise ViolationError("RefsKeepTheirs", f"{number} expires under {ref}")

    def intrude(self) -> None:
        """Commit as another writer would: the same files, without a summary of ours."""
        newest = self.newest
        if newest is None:
            return
        self._supersede()
        self.newest = self._others(newest, newest.files)

    def _others(self, parent: Stored, files: dict[str, LiveFile]) -> Stored:
        self.commits += 1
        snapshot = TableSnapshot(
            self.randomness.getrandbits(62),
            self.commits,
            self.now_ms,
            description="overwrite by spark",
            parent_id=parent.snapshot.snapshot_id,
        )
        stored = Stored(snapshot, dict(files))
        self.snapshots.append(stored)
        return stored

    def roll_back(self) -> None:
        """Go back to the last snapshot of the topic, as an operator does; later ones expire."""
        ours = [each for each in self.snapshots if each.snapshot.topic_id is not None]
        if self.newest is not None and self.newest.snapshot.topic_id is None and ours:
            self.newest = ours[-1]

    def add_ref(self) -> None:
        if not self.snapshots:
            return
        stored = self.randomness.choice(self.snapshots)
        name = f"ref-{self.randomness.getrandbits(32):08x}"
        is_branch = self.randomness.random() < 0.5
        keep = self.randomness.choice([None, 2, 3]) if is_branch else None
        max_age_ms = self.randomness.choice([None, None, 60_000])
        self.refs[name] = TableRef(
            name, stored.snapshot.snapshot_id, is_branch, keep, max_ref_age_ms=max_age_ms
        )

    def drop_ref(self) -> None:
        if self.refs:
            del self.refs[self.randomness.choice(list(self.refs))]

    def commit_to_branch(self, added: Iterable[LiveFile] = ()) -> bool:
        """Commit files of another writer to a branch; return whether there is one."""
        branches = [ref for ref in self.refs.values() if ref.is_branch]
        if not branches:
            return False
        ref = self.randomness.choice(branches)
        head = self.stored(ref.snapshot_id)
        assert head is not None, f"the snapshot of {ref} stays"
        made = self._others(head, head.files | {each.name: each for each in added})
        self.refs[ref.name] = ref._replace(snapshot_id=made.snapshot.snapshot_id)
        return True
