"""A catalogue with one table: compare-and-swap on the newest snapshot, and commits that land late."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sparklog.driver.controller.tables.machine.events import Commit, TableSnapshot
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
    commits: int = 0
    now_ms: int = 0

    @property
    def newest(self) -> Stored | None:
        return self.snapshots[-1] if self.snapshots else None

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
        )
        stored = Stored(snapshot, files)
        self._supersede()
        self.snapshots.append(stored)
        self.on_commit(stored)
        return snapshot

    def _supersede(self) -> None:
        if self.newest is not None and self.newest.snapshot.topic_id is not None:
            self.superseded.append((self.now_ms, self.newest))

    def land_one_late(self) -> None:
        if self.late:
            self.commit(self.late.pop(self.randomness.randrange(len(self.late))))

    def expire(self, snapshot_ids: tuple[int, ...]) -> None:
        newest = self.newest
        self.snapshots = [
            each for each in self.snapshots if each is newest or each.snapshot.snapshot_id not in snapshot_ids
        ]

    def intrude(self) -> None:
        """Commit as another writer would: the same files, without a summary of ours."""
        newest = self.newest
        if newest is None:
            return
        self.commits += 1
        snapshot = TableSnapshot(
            self.randomness.getrandbits(62), self.commits, self.now_ms, description="overwrite by spark"
        )
        self._supersede()
        self.snapshots.append(Stored(snapshot, dict(newest.files)))

    def roll_back(self) -> None:
        """Take other writers' snapshots back, as an operator does."""
        while self.newest is not None and self.newest.snapshot.topic_id is None:
            self.snapshots.pop()
