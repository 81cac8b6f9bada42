"""When snapshots were superseded: a query may begin on a snapshot for as long as it is the newest one.

So the retention counts from then, and not from when a snapshot was made: a table without commits for an hour
has a newest snapshot of an hour ago, which queries of this minute read.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

from sparklog.driver.controller.tables.machine.events import TableSnapshot
from sparklog.protocol.types import TimestampMs


class SnapshotAges:
    def __init__(self) -> None:
        self._superseded_ms: dict[int, TimestampMs] = {}
        """By ids, of snapshots that have been the newest here."""

    def superseded(self, snapshot: TableSnapshot | None, wall_ms: TimestampMs) -> None:
        """Note that a snapshot that was the newest is no longer; None for none."""
        if snapshot is not None:
            self._superseded_ms[snapshot.snapshot_id] = wall_ms

    def keep(self, snapshots: Collection[TableSnapshot]) -> None:
        """Forget all but these."""
        ids = {each.snapshot_id for each in snapshots}
        self._superseded_ms = {id: at_ms for id, at_ms in self._superseded_ms.items() if id in ids}

    def expired(
        self, snapshots: Sequence[TableSnapshot], newest: TableSnapshot, before_ms: TimestampMs
    ) -> tuple[int, ...]:
        """Return the ids of those of `snapshots`, the oldest first, that were superseded before a time.

        The successor of a snapshot says when, as far as it was not seen: a snapshot has the time of its
        writer's attempt, and one that a rollback has made the newest again has a later successor.
        """
        return tuple(
            each.snapshot_id
            for each, successor in pairwise(snapshots)
            if each != newest
            and max(successor.timestamp_ms, self._superseded_ms.get(each.snapshot_id, 0)) < before_ms
        )
