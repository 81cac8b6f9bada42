"""Transactions as the tab shows them: the oldest first, and what is wrong with each.

A transaction that is open holds up readers of committed records, in every partition that it has written to,
from its first record on. One whose producer is gone ends by its time-out; one without a time-out by
somebody's decision (KIP-939); one that no coordinator knows of by an operator (KIP-664).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from sparklog.client.transactions import ActiveProducer, TransactionDescription
from sparklog.types import (
    BrokerId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
LONG_MS: Final = 60_000
"""The time-out that producers have by default."""
GRACE_MS: Final = 20_000
"""Coordinators look every 10 s for transactions that have timed out, and then have markers written."""


class TransactionRemark(StrEnum):
    """What is to be said of a transaction; the worst first."""

    OVERDUE = "past its time-out"
    """Its coordinator should have aborted it."""
    STUCK = "decided, markers missing"
    """Some partition does not take its marker."""
    UNDECIDED = "waits for a decision"
    """It has no time-out."""
    LONG = "open for long"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStatus:
    """A transaction that has not ended."""

    transactional_id: str
    state: str
    remark: TransactionRemark | None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator: BrokerId
    started_ms: TimestampMs | None
    age_ms: int | None
    timeout_ms: int | None
    """None: it has none."""
    partitions: tuple[TopicPartition, ...]
    """Those that have no marker yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    """A producer that has written to a partition, as the leader remembers it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_start_offset: Offset | None
    """Where its open transaction begins here; None for none."""
    is_hanging: bool
    """Whether no coordinator knows that this partition is in a transaction: none will ever end it."""
    transactional_id: str | None
    state: str | None
    last_timestamp_ms: TimestampMs | None
    last_sequence: int | None
    coordinator_epoch: int | None


Preparation: TypeAlias = tuple[str, ProducerId, ProducerEpoch, str]
"""A transaction that is decided: transactional id, producer id and epoch, and which way."""


def prepared_since(
    described: Iterable[TransactionDescription], before: Mapping[Preparation, int], now_ms: int
) -> dict[Preparation, int]:
    """Return since when transactions that are decided have been seen so; no answer of a broker says it."""
    return {
        key: before.get(key, now_ms)
        for each in described
        if each.state != "Ongoing"
        for key in [_preparation(each)]
    }


def oldest_first(
    described: Iterable[TransactionDescription],
    coordinators: Mapping[str, BrokerId],
    prepared_for_ms: Mapping[Preparation, int],
    now_ms: TimestampMs,
) -> tuple[TransactionStatus, ...]:
    """Return those that have not ended; `prepared_for_ms` is for how long each was seen to be decided."""
    made = []
    for each in described:
        if each.state not in OPEN_STATES:
            continue
        age_ms = None if each.started_ms is None else max(0, now_ms - each.started_ms)
        made.append(
            TransactionStatus(
                transactional_id=each.transactional_id,
                state=each.state,
                remark=_remark(each, age_ms, prepared_for_ms.get(_preparation(each), 0)),
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                coordinator=coordinators[each.transactional_id],
                started_ms=each.started_ms,
                age_ms=age_ms,
                timeout_ms=each.timeout_ms,
                partitions=tuple(sorted(each.partitions)),
            )
        )
    return tuple(sorted(made, key=lambda each: (-(each.age_ms or 0), each.transactional_id)))


def unknown_to_coordinators(
    producers: Iterable[ActiveProducer],
    described: Mapping[ProducerId, TransactionDescription],
    topic_partition: TopicPartition,
    now_ms: TimestampMs,
) -> dict[ProducerId, Offset]:
    """Return the open transactions of a partition that no coordinator would end, by where they begin.

    All coordinators have been asked after the leader. A transaction that ended in between seems to be one of
    these, so only what is still open when the leader is asked once more is hanging. And a coordinator that is
    just replaced may not be told from one that knows nothing: nothing was appended for a minute, either.

    Source: Kafka's TransactionsCommand.FindHangingTransactionsCommand.
    """
    return {
        each.producer_id: each.transaction_start_offset
        for each in producers
        if each.transaction_start_offset is not None
        and now_ms - (each.last_timestamp_ms or 0) > LONG_MS
        and (
            each.producer_id not in described or topic_partition not in described[each.producer_id].partitions
        )
    }


def producer_rows(
    producers: Sequence[ActiveProducer],
    described: Mapping[ProducerId, TransactionDescription],
    hanging: Mapping[ProducerId, Offset],
) -> tuple[ProducerRow, ...]:
    """Return producers: those with an open transaction by where it begins, then who has written last."""
    rows = []
    for each in producers:
        known = described.get(each.producer_id)
        start_offset = each.transaction_start_offset
        rows.append(
            ProducerRow(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                transaction_start_offset=start_offset,
                is_hanging=start_offset is not None and hanging.get(each.producer_id) == start_offset,
                transactional_id=None if known is None else known.transactional_id,
                state=None if known is None else known.state,
                last_timestamp_ms=each.last_timestamp_ms,
                last_sequence=each.last_sequence,
                coordinator_epoch=each.coordinator_epoch,
            )
        )
    rows.sort(
        key=lambda row: (
            row.transaction_start_offset is None,
            row.transaction_start_offset or 0,
            -(row.last_timestamp_ms or 0),
            row.producer_id,
        )
    )
    return tuple(rows)


def _remark(
    transaction: TransactionDescription, age_ms: int | None, prepared_for_ms: int
) -> TransactionRemark | None:
    if transaction.state != "Ongoing":
        return TransactionRemark.STUCK if prepared_for_ms > GRACE_MS else None
    if transaction.timeout_ms is None:
        return TransactionRemark.UNDECIDED
    if age_ms is None:
        return None
    if age_ms > transaction.timeout_ms + GRACE_MS:
        return TransactionRemark.OVERDUE
    return TransactionRemark.LONG if age_ms > LONG_MS else None


def _preparation(transaction: TransactionDescription) -> Preparation:
    return (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state,
    )
