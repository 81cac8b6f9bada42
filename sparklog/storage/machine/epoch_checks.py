"""Whether a request means this leadership, or a fetcher's log diverges from the leader's.

The one rule by which logs are cut, of partitions and of the metadata. Pure. Source: KIP-320 (fencing by
leader epoch), KIP-279 and KIP-595 (divergence in the fetch response).
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


def fetch_divergence(
    history: LeaderEpochHistory,
    last_fetched_epoch: LeaderEpoch | None,
    fetch_offset: Offset,
    log_start_offset: Offset,
    log_end_offset: Offset,
) -> tuple[LeaderEpoch, Offset] | None:
    """Return where a fetcher's log leaves this one, or None while it is a prefix of it (KIP-595).

    The fetcher has records up to `fetch_offset`, the last of them of `last_fetched_epoch` (None: it has
    none, or does not say). The answer is the largest common epoch and its end here; `truncation_offset` says
    what the fetcher cuts by it.

    Raises:
        KafkaError: offset_out_of_range when the offset is not in this log and no divergence explains it, or
            nothing was ever written here.
    """
    if last_fetched_epoch is not None:
        known = history.end_offset_for(last_fetched_epoch)
        if known is None:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"the log is empty and knows nothing of leader epoch {last_fetched_epoch}",
            )
        epoch, end_offset = known
        if fetch_offset >= log_start_offset and (epoch < last_fetched_epoch or end_offset < fetch_offset):
            return known
    if not log_start_offset <= fetch_offset <= log_end_offset:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"fetch offset {fetch_offset} is not in the log, which is {log_start_offset} to {log_end_offset}",
        )
    return None


def truncation_offset(
    history: LeaderEpochHistory,
    diverging_epoch: tuple[LeaderEpoch, Offset],
    log_start_offset: Offset,
    log_end_offset: Offset,
) -> Offset:
    """Return where a fetcher cuts its log, which has `history`, when told of a divergence (KIP-279)."""
    epoch, end_offset = diverging_epoch
    own = history.end_offset_for(epoch)
    if own is None:
        # Nothing here is of an epoch that the other log shares.
        return log_start_offset
    own_epoch, own_end_offset = own
    # The other's end says nothing about an epoch it has but this log has not; then the common prefix is at
    # most our records of older epochs, and the next fetch asks about those.
    offset = own_end_offset if own_epoch != epoch else min(end_offset, own_end_offset)
    return max(min(offset, log_end_offset), log_start_offset)
