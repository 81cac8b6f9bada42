"""Where a fetcher of the metadata log begins: where it asks to, at a snapshot, or where the two logs part.

Pure. It needs a snapshot when the log no longer has what it would have to be given: it is answered with the
newest one's id instead of records. Source: KIP-595.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.storage.machine.epoch_checks import LeaderEpochHistory, divergence
from sparklog.storage.machine.leader_epochs import LeaderEpochs
from sparklog.types import LeaderEpoch, Offset, SnapshotId

__all__ = ["common_end", "parting", "snapshot_for"]


def parting(
    fetch_offset: Offset,
    last_fetched_epoch: LeaderEpoch | None,
    *,
    history: LeaderEpochHistory,
    log_start_offset: Offset,
    log_end_offset: Offset,
    oldest: SnapshotId | None,
    newest: SnapshotId | None,
) -> SnapshotId | tuple[LeaderEpoch, Offset] | None:
    """Return where a fetcher has to begin instead; None where it can go on from what it has.

    It has records up to `fetch_offset`, the last of them of `last_fetched_epoch` (None: it has none). The
    answer is the snapshot that it is to fetch, of those there are from `oldest` to `newest`, or the largest
    common epoch and its end here, by which it cuts its log.

    Raises:
        KafkaError: offset_out_of_range.
    """
    snapshot = snapshot_for(
        fetch_offset, last_fetched_epoch, log_start_offset=log_start_offset, oldest=oldest, newest=newest
    )
    if snapshot is not None:
        return snapshot
    parted = divergence(history, last_fetched_epoch, fetch_offset, log_start_offset)
    if parted is None and not log_start_offset <= fetch_offset <= log_end_offset:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"fetch offset {fetch_offset} is not in the log, which is {log_start_offset} to {log_end_offset}",
        )
    return parted


def common_end(
    epochs: LeaderEpochs, log_end_offset: Offset, leader_epoch: LeaderEpoch, end_offset: Offset
) -> Offset:
    """Return where to cut a log that parts from another, in which `leader_epoch` ends at `end_offset`."""
    own = epochs.end_offset_for(leader_epoch, log_end_offset)
    return min(log_end_offset if own is None else own.end_offset, end_offset)


def snapshot_for(
    fetch_offset: Offset,
    last_fetched_epoch: LeaderEpoch | None,
    *,
    log_start_offset: Offset,
    oldest: SnapshotId | None,
    newest: SnapshotId | None,
) -> SnapshotId | None:
    """Return the snapshot with which a fetcher has to begin; `None` where the log will do.

    It has nothing yet, which a snapshot mends sooner than the log; or it is below the log's start; or its log
    has other records just there than the snapshot at which the log starts.

    >>> snapshots = {"oldest": SnapshotId(100, 2), "newest": SnapshotId(300, 5)}
    >>> snapshot_for(99, 2, log_start_offset=100, **snapshots)
    SnapshotId(end_offset=300, leader_epoch=5)
    >>> snapshot_for(100, 2, log_start_offset=100, **snapshots) is None
    True
    """
    if oldest is None or newest is None:
        return None
    if fetch_offset == 0 or fetch_offset < log_start_offset:
        return newest
    if oldest.end_offset > log_start_offset:
        return None  # The log has what is in the snapshots.
    last_epoch = -1 if last_fetched_epoch is None else last_fetched_epoch
    if fetch_offset == log_start_offset:
        return None if last_epoch == oldest.leader_epoch else newest
    return newest if last_epoch < oldest.leader_epoch else None
