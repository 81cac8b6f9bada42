"""Outcome of a producer's EndTxn, in both versions of transactions.

The epoch identifies the transaction. In version 2 (KIP-890) that is exact, since each has its own: a repeated
commit of a completed transaction gets the first response again, and a later one is fenced. In version 1 all
transactions of a producer share an epoch, and the outcome depends on how the last one ended.

One rule is milder than Kafka's: a producer that ends a transaction in its new epoch, while the markers of the
previous one are being written, must retry, where Kafka fences it.

Source: Kafka's TransactionCoordinator.endTransaction and endTransactionWithTV1.
"""

from typing import Final

from sparklog.executor.coordinators.transactions.machine.events import (
    NEEDS_PRODUCER_ID,
    EndTransaction,
    NeedsProducerId,
    ProducerOutcome,
)
from sparklog.executor.coordinators.transactions.machine.metadata import (
    EPOCH_BUMP_VERSION,
    EXHAUSTED_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TimestampMs

_COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def end(
    event: EndTransaction, known: TransactionMetadata, wall_ms: TimestampMs
) -> TransactionMetadata | ProducerOutcome | NeedsProducerId:
    if event.transaction_version >= EPOCH_BUMP_VERSION:
        return _end(event, known, wall_ms)
    return _end_without_bump(event, known, wall_ms)


def _end_without_bump(
    event: EndTransaction, known: TransactionMetadata, wall_ms: TimestampMs
) -> TransactionMetadata | ProducerOutcome:
    if known.producer_id != event.producer.producer_id:
        return ProducerOutcome(ErrorCode.invalid_producer_id_mapping)
    if known.producer_epoch != event.producer.producer_epoch:
        return ProducerOutcome(ErrorCode.producer_fenced)
    if known.state is TransactionState.ONGOING:
        return known.prepared(event.committed, 0, wall_ms)
    if _ended_as(event, known):
        return ProducerOutcome(ErrorCode.none)
    return _unless_ending(event, known)


def _end(
    event: EndTransaction, known: TransactionMetadata, wall_ms: TimestampMs
) -> TransactionMetadata | ProducerOutcome | NeedsProducerId:
    producer_id, producer_epoch = event.producer
    if known.state.is_prepared and event.producer == known.given_producer:
        # It knows how its previous transaction ends, and ends the next one already.
        return ProducerOutcome(ErrorCode.concurrent_transactions)
    went_over = (
        known.previous_producer_id == producer_id
        and producer_epoch == EXHAUSTED_EPOCH
        and known.producer_epoch == 0
    )
    if known.producer_id != producer_id and not went_over:
        return ProducerOutcome(ErrorCode.invalid_producer_id_mapping)
    # An ended transaction of version 1 in the next epoch is another producer's, which has that epoch.
    has_ended = known.bumps_epoch and (known.state.is_prepared or known.state in _COMPLETE)
    if has_ended and (went_over or known.producer_epoch == producer_epoch + 1):
        if _ended_as(event, known):
            return ProducerOutcome(ErrorCode.none, known.given_producer)
        return _unless_ending(event, known)
    if known.producer_epoch != producer_epoch or known.state.is_prepared:
        # While a transaction ends, no client has the epoch in which the markers are written.
        return ProducerOutcome(ErrorCode.producer_fenced)
    if event.committed and known.state is not TransactionState.ONGOING:
        return ProducerOutcome(ErrorCode.invalid_txn_state)
    if not known.is_exhausted:
        return known.prepared(event.committed, event.transaction_version, wall_ms)
    if event.new_producer_id is None:
        return NEEDS_PRODUCER_ID
    return known.prepared(event.committed, event.transaction_version, wall_ms, event.new_producer_id)


def _ended_as(event: EndTransaction, known: TransactionMetadata) -> bool:
    ended = TransactionState.COMPLETE_COMMIT if event.committed else TransactionState.COMPLETE_ABORT
    return known.state is ended


def _unless_ending(event: EndTransaction, known: TransactionMetadata) -> ProducerOutcome:
    """Return the error of a transaction that is already ending the requested way, or of another state."""
    ending = TransactionState.PREPARE_COMMIT if event.committed else TransactionState.PREPARE_ABORT
    if known.state is ending:
        return ProducerOutcome(ErrorCode.concurrent_transactions)
    return ProducerOutcome(ErrorCode.invalid_txn_state)
