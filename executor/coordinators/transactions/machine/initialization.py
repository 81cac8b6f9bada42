"""InitProducerId with a transactional id: the producer's id and epoch.

A new producer gets the next epoch, which fences all earlier ones; after the last epoch of a producer id it
gets a new id and epoch 0. A producer that continues (KIP-360) names its id and epoch, and gets the next epoch
only if no later producer exists. An open transaction is aborted first, in an epoch that no client gets: the
producer must retry.

One rule is stricter than Kafka's, which aborts the open transaction for any client that names its producer
id: here a producer of an older epoch is fenced at once. Otherwise a request that was delayed until its sender
had begun its next transaction would abort that.

Source: Kafka's TransactionCoordinator.prepareInitProducerIdTransit; KIP-360, KIP-588.
"""

from typing import NamedTuple

from sparklog.executor.coordinators.transactions.machine.events import (
    NEEDS_PRODUCER_ID,
    InitProducer,
    NeedsProducerId,
    ProducerOutcome,
)
from sparklog.executor.coordinators.transactions.machine.metadata import (
    EXHAUSTED_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import ProducerEpoch, TimestampMs


class Initialized(NamedTuple):
    metadata: TransactionMetadata
    last_epoch: ProducerEpoch | None
    """Former epoch of the producer: a retry in that epoch gets the same outcome."""


def initialize(
    event: InitProducer,
    known: TransactionMetadata | None,
    *,
    last_epoch: ProducerEpoch | None,
    transaction_version: int,
    wall_ms: TimestampMs,
) -> Initialized | TransactionMetadata | ProducerOutcome | NeedsProducerId:
    """Return the producer's new state, or the transaction to abort first, or an error.

    `last_epoch` is the epoch before the producer's present one, if known.
    """
    if known is None:
        if event.new_producer_id is None:
            return NEEDS_PRODUCER_ID
        created = TransactionMetadata(
            producer_id=event.new_producer_id,
            previous_producer_id=event.new_producer_id,
            producer_epoch=0,
            timeout_ms=event.timeout_ms,
            state=TransactionState.EMPTY,
            last_update_ms=wall_ms,
        )
        return Initialized(created, None)
    if not _may_be(event, known):
        return ProducerOutcome(ErrorCode.producer_fenced)
    expected_epoch = None if event.expected is None else event.expected.producer_epoch
    if known.state.is_prepared:
        return ProducerOutcome(ErrorCode.concurrent_transactions)
    if known.state is TransactionState.ONGOING:
        if expected_epoch not in (None, known.producer_epoch):
            return ProducerOutcome(ErrorCode.producer_fenced)
        needs_id = bool(transaction_version) and known.is_exhausted
        if needs_id and event.new_producer_id is None:
            return NEEDS_PRODUCER_ID
        return known.fenced(transaction_version, wall_ms, event.new_producer_id if needs_id else None)
    if expected_epoch not in (None, known.producer_epoch):
        if expected_epoch != last_epoch:
            return ProducerOutcome(ErrorCode.producer_fenced)
        # It was assigned the present epoch, and did not receive the response.
        same = known.initialized(known.producer_id, known.producer_epoch, event.timeout_ms, wall_ms)
        return Initialized(same, last_epoch)
    if known.is_exhausted:
        if event.new_producer_id is None:
            return NEEDS_PRODUCER_ID
        rotated = known.initialized(event.new_producer_id, 0, event.timeout_ms, wall_ms)
        return Initialized(rotated, expected_epoch)
    bumped = known.initialized(known.producer_id, known.producer_epoch + 1, event.timeout_ms, wall_ms)
    return Initialized(bumped, expected_epoch)


def _may_be(event: InitProducer, known: TransactionMetadata) -> bool:
    """Whether the client's producer id matches the holder of the transactional id."""
    expected = event.expected
    if expected is None or expected.producer_id in (known.producer_id, known.given_producer.producer_id):
        return True
    return expected.producer_id == known.previous_producer_id and expected.producer_epoch >= EXHAUSTED_EPOCH
