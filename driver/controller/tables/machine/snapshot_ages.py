"""When snapshots were superseded: a query may begin on a snapshot for as long as it is the newest one.

So the retention counts from then, and not from when a snapshot was made: a table without commits for an hour
has a newest snapshot of an hour ago, which queries of this minute read.
"""

from collections.abc import Sequence
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
