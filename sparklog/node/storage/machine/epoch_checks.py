"""Checks of leader epochs: whether a request is for this leadership, and where a fetcher's log diverges.

The one rule by which logs are truncated, partitions' and the metadata log. Pure. Source: KIP-320 (fencing by
leader epoch), KIP-279 and KIP-595 (divergence in the fetch response).
"""

from typing import Protocol

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import LeaderEpoch, Offset


class LeaderEpochHistory(Protocol):
    def end_offset_for(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Return the largest known epoch not above `leader_epoch` and its exclusive end offset.

        For one older than all that are known: itself, and where the oldest begins. None without any.
        """
        ...


def check_leader_epoch(requested: LeaderEpoch | None, current: LeaderEpoch) -> None:
    """Refuse a request for another leadership (KIP-320); None asks for no check.

    Raises:
        KafkaError: fenced_leader_epoch for an older epoch, unknown_leader_epoch for a newer one.
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
    """Return where a fetcher's log diverges from this one, or None while it is a prefix of it (KIP-595).

    The fetcher has records up to `fetch_offset`, the last of them of `last_fetched_epoch` (None: it has none,
    or does not send it). The answer is the largest common epoch and its end here, from which the fetcher
    computes `truncation_offset`.

    Raises:
        KafkaError: offset_out_of_range if the offset is not in this log and no divergence explains it, or
            if this log never had a record.
    """
    if last_fetched_epoch is not None:
        known = history.end_offset_for(last_fetched_epoch)
        if known is None:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"the log is empty and has no leader epoch {last_fetched_epoch}",
            )
        epoch, end_offset = known
        if fetch_offset >= log_start_offset and (epoch < last_fetched_epoch or end_offset < fetch_offset):
            return known
    if not log_start_offset <= fetch_offset <= log_end_offset:
        raise KafkaError(
            ErrorCode.offset_out_of_range,
            f"fetch offset {fetch_offset} is outside the log, [{log_start_offset}, {log_end_offset}]",
        )
    return None


def truncation_offset(
    history: LeaderEpochHistory,
    diverging_epoch: tuple[LeaderEpoch, Offset],
    log_start_offset: Offset,
    log_end_offset: Offset,
) -> Offset:
    """Return the offset to which a fetcher with `history` truncates on a divergence (KIP-279)."""
    epoch, end_offset = diverging_epoch
    own = history.end_offset_for(epoch)
    if own is None:
        # The logs share no epoch.
        return log_start_offset
    own_epoch, own_end_offset = own
    # If the other log has an epoch that this log lacks, its end is irrelevant: the common prefix is at most
    # our records of older epochs, and the next fetch asks about those.
    offset = own_end_offset if own_epoch != epoch else min(end_offset, own_end_offset)
    return max(min(offset, log_end_offset), log_start_offset)
