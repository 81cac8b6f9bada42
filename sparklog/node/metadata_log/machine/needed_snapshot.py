"""Whether a fetcher of the metadata log has to begin with a snapshot.

Pure. It needs one if the log no longer has the records it would need: the response then has the newest
snapshot's id instead of records. Source: KIP-595.
"""

from sparklog.protocol.types import LeaderEpoch, Offset, SnapshotId


def needed_snapshot(
    fetch_offset: Offset,
    last_fetched_epoch: LeaderEpoch | None,
    *,
    log_start_offset: Offset,
    oldest: SnapshotId | None,
    newest: SnapshotId | None,
) -> SnapshotId | None:
    """Return the snapshot with which a fetcher has to begin; `None` if the log suffices.

    It needs one if it has no records, since a snapshot is faster than the log; if it is below the log's
    start; or if its log differs, at the log's start, from the snapshot there.

    >>> snapshots = {"oldest": SnapshotId(100, 2), "newest": SnapshotId(300, 5)}
    >>> needed_snapshot(99, 2, log_start_offset=100, **snapshots)
    SnapshotId(end_offset=300, leader_epoch=5)
    >>> needed_snapshot(100, 2, log_start_offset=100, **snapshots) is None
    True
    """
    if oldest is None or newest is None:
        return None
    if fetch_offset == 0 or fetch_offset < log_start_offset:
        return newest
    if oldest.end_offset > log_start_offset:
        return None  # The log has what is in the snapshots.
    if fetch_offset == log_start_offset:
        return None if last_fetched_epoch == oldest.leader_epoch else newest
    return newest if last_fetched_epoch is None or last_fetched_epoch < oldest.leader_epoch else None
