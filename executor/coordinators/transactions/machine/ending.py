"""What comes of a producer's commit or abort: EndTxn, in both versions of transactions.

Which transaction is meant is told by the epoch. In version 2 (KIP-890) that is exact, since each has its own:
a commit that was sent again after its transaction ended is answered as the first time, and one that comes
later still is fenced. In version 1 all transactions of a producer share an epoch, and the answer goes by how
the last one ended.

In one thing this is milder than Kafka: who ends a transaction in its new epoch while the markers of the one
before are on their way is to try again, where Kafka fences it.

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
    """Return the transaction as it is decided now, or an answer without one."""
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
        # It was told how its transaction ends, and is already about to end the next one.
        return ProducerOutcome(ErrorCode.concurrent_transactions)
    went_over = (
        known.previous_producer_id == producer_id
        and producer_epoch == EXHAUSTED_EPOCH
        and known.producer_epoch == 0
    )
    if known.producer_id != producer_id and not went_over:
        return ProducerOutcome(ErrorCode.invalid_producer_id_mapping)
    # One of version 1 that ended in the next epoch is another producer's, which has that epoch.
    has_ended = known.bumps_epoch and (known.state.is_prepared or known.state in _COMPLETE)
    if has_ended and (went_over or known.producer_epoch == producer_epoch + 1):
        if _ended_as(event, known):
            return ProducerOutcome(ErrorCode.none, known.given_producer)
        return _unless_ending(event, known)
    if known.producer_epoch != producer_epoch or known.state.is_prepared:
        # Of one that is already ending nobody has the epoch in which the markers are written.
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
    """Return that the transaction is ending the way that is asked for, or that it is not."""
    ending = TransactionState.PREPARE_COMMIT if event.committed else TransactionState.PREPARE_ABORT
    if known.state is ending:
        return ProducerOutcome(ErrorCode.concurrent_transactions)
    return ProducerOutcome(ErrorCode.invalid_txn_state)
