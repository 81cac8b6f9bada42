"""The snapshots that branches and tags keep, by the retention policy of Iceberg's table specification.

A tag keeps its snapshot, a branch its head and as many ancestors as `min-snapshots-to-keep` and
`max-snapshot-age-ms` say. A ref other than `main` goes once its snapshot is older than `max-ref-age-ms`. All
other snapshots have sparklog.table.snapshot.retention.ms alone. Java's RemoveSnapshots decides the same; it
refuses tables with gc.enabled=false, so that these refs expire here or nowhere.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sparklog.protocol.types import TimestampMs

MAIN: Final = "main"


class TableRef(NamedTuple):
    """A branch or a tag; limits that neither the ref nor the table's properties give are None."""

    name: str
    snapshot_id: int
    is_branch: bool = False
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None


class Ancestor(NamedTuple):
    """A snapshot in the history of a branch."""

    parent_id: int | None
    timestamp_ms: TimestampMs


def without_main(refs: Iterable[TableRef]) -> tuple[TableRef, ...]:
    return tuple(ref for ref in refs if ref.name != MAIN)


def expired_refs(
    refs: Iterable[TableRef], ancestors: Mapping[int, Ancestor], now_ms: TimestampMs
) -> tuple[TableRef, ...]:
    """Return the refs whose snapshots are too old for them."""
    return tuple(
        ref
        for ref in without_main(refs)
        if ref.max_ref_age_ms is not None
        and ref.snapshot_id in ancestors
        and now_ms - ancestors[ref.snapshot_id].timestamp_ms > ref.max_ref_age_ms
    )


def kept_snapshots(
    refs: Iterable[TableRef], ancestors: Mapping[int, Ancestor], now_ms: TimestampMs
) -> dict[int, str]:
    """Return the snapshots that refs keep, each with the name of the first ref that does.

    >>> ancestors = {1: Ancestor(None, 0), 2: Ancestor(1, 10), 3: Ancestor(2, 20)}
    >>> kept_snapshots([TableRef("audit", 1), TableRef("dev", 3, True, 2)], ancestors, 30)
    {1: 'audit', 3: 'dev', 2: 'dev'}
    """
    kept: dict[int, str] = {}
    for ref in refs:
        snapshot_id: int | None = ref.snapshot_id
        count = 0
        while snapshot_id is not None and snapshot_id in ancestors:
            parent_id, timestamp_ms = ancestors[snapshot_id]
            is_young = (
                ref.max_snapshot_age_ms is not None and now_ms - timestamp_ms <= ref.max_snapshot_age_ms
            )
            if count and not (ref.is_branch and (count < (ref.min_snapshots_to_keep or 1) or is_young)):
                break
            kept.setdefault(snapshot_id, ref.name)
            count += 1
            snapshot_id = parent_id
    return kept
