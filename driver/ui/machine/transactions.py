"""Transactions for the tab: the oldest first, with remarks on each.

An open transaction holds up readers of committed records, in every partition that it has written to, from its
first record on. A transaction whose producer is gone is aborted by its time-out; one without a time-out by an
external decision (KIP-939); one that is unknown to every coordinator by an operator (KIP-664).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from sparklog.protocol.types import BrokerId, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from sparklog.user.client.transactions import ActiveProducer, TransactionDescription

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
LONG_MS: Final = 60_000
"""The producers' default time-out."""
GRACE_MS: Final = 20_000
"""Coordinators look every 10 s for transactions that have timed out, and then have markers written."""


class TransactionRemark(StrEnum):
    """A remark on a transaction; the worst first."""

    OVERDUE = "past its time-out"
    """Its coordinator should have aborted it."""
    STUCK = "decided, markers missing"
    """A partition has not accepted its marker."""
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
    """Partitions without a marker yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    """A producer of a partition, as the leader remembers it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transaction_start_offset: Offset | None
    """The start of its open transaction here; None for none."""
    is_hanging: bool
    """Whether the partition's transaction is unknown to every coordinator, so that none will end it."""
    transactional_id: str | None
    state: str | None
    last_timestamp_ms: TimestampMs | None
    last_sequence: int | None
    coordinator_epoch: int | None


Preparation: TypeAlias = tuple[str, ProducerId, ProducerEpoch, str]
"""A decided transaction: transactional id, producer id and epoch, and the decision."""


def prepared_since(
    described: Iterable[TransactionDescription], before: Mapping[Preparation, int], now_ms: int
) -> dict[Preparation, int]:
    """Return since when decided transactions have been observed as such; no broker's answer says it."""
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
    """Return those that have not ended; `prepared_for_ms` is how long each was observed as decided."""
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
    """Return the open transactions of a partition that no coordinator would end, by their start offsets.

    All coordinators have been asked after the leader. A transaction that ended in between looks like one of
    these, so only one that is still open when the leader is asked once more is hanging. And a coordinator
    that was just replaced cannot be distinguished from one without the transaction: so no record may have
    been appended for a minute, either.

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
    """Return producers: those with an open transaction by its start, then the latest writers."""
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
