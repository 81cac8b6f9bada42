"""Whether a request means this leadership, and whether a reader's log is a prefix of the leader's.

Pure. Source: KIP-320 (fencing by leader epoch), KIP-595 (divergence in the fetch response).
"""

from typing import Protocol

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import LeaderEpoch, Offset


class LeaderEpochHistory(Protocol):
    """The epochs of a log: which leader epoch wrote which offsets."""

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Return the largest known epoch not above `leader_epoch` and its exclusive end.

        For one older than all that are known: itself, and where the oldest begins. None without any.
        """
        ...


def check_leader_epoch(requested: LeaderEpoch | None, current: LeaderEpoch) -> None:
    """Refuse a request that was made for another leadership (KIP-320); None asks for no check.

    Raises:
        KafkaError: fenced_leader_epoch for an older epoch, unknown_leader_epoch for one not yet seen.
    """
    if requested is None or requested == current:
        return
    if requested < current:
        raise KafkaError(
            ErrorCode.fenced_leader_epoch, f"leader epoch {requested} of the request is older than {current}"
        )
    raise KafkaError(
        ErrorCode.unknown_leader_epoch, f"leader epoch {requested} of the request is newer than {current}"
    )


def divergence(
    history: LeaderEpochHistory,
    last_fetched_epoch: LeaderEpoch | None,
    fetch_offset: Offset,
    log_start_offset: Offset,
) -> tuple[LeaderEpoch, Offset] | None:
    """Return where a reader's log leaves this one, or None while it is a prefix of it (KIP-595).

    The reader has records up to `fetch_offset`, the last of them of `last_fetched_epoch` (None: it has
    none). The answer is the largest common epoch and its end here; the reader cuts its log by it.

    Raises:
        KafkaError: offset_out_of_range when the offset is gone or nothing was ever written here.
    """
    if last_fetched_epoch is None:
        return None
    known = history.end_offset_for(last_fetched_epoch)
    if known is None:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"the log is empty and knows nothing of leader epoch {last_fetched_epoch}",
        )
    if fetch_offset < log_start_offset:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"fetch offset {fetch_offset} is below the log start offset {log_start_offset}",
        )
    epoch, end_offset = known
    return known if epoch < last_fetched_epoch or end_offset < fetch_offset else None
