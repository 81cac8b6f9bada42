"""Verification of a transaction's batches before they are appended (KIP-890).

The coordinator of a transaction decides whether it may begin in a partition
(`sparklog.executor.verification`). The producer gets the error code that Kafka would give: where a retry may
help, that is NOT_ENOUGH_REPLICAS, which every producer retries; only since transactions version 2 do
producers know that their last transaction may still be on its way to its end (CONCURRENT_TRANSACTIONS).
"""

from collections.abc import Sequence
from typing import Final

from sparklog.executor.api.produce.delayed_produce import WaitingBatch
from sparklog.executor.verification.machine.waiting_additions import TransactionOperation
from sparklog.executor.verification.transaction_verifier import (
    BatchToVerify,
    TransactionOfProducer,
    TransactionVerifier,
)
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, read_header

_ATTRIBUTES_AT: Final = 22
"""Position of the attributes' lower byte in a batch's header."""
_UNABLE_TO_VERIFY: Final = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class TransactionalProducers:
    """The producers of a request's transactional records: one, and none without a transactional id."""

    __slots__ = ("_producers", "_transactional_id", "refusal")

    def __init__(self, transactional_id: str | None) -> None:
        self._transactional_id = transactional_id
        self._producers: set[tuple[int, int]] = set()
        self.refusal: KafkaError | None = None
        """The reason why nothing of the request can be appended, if there is one."""

    def look(self, records: bytes | memoryview | None) -> None:
        """Take note of a partition's records."""
        if records is None or len(records) < HEADER_BYTES or not records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
            return
        if self._transactional_id is None:
            self.refusal = KafkaError(
                ErrorCode.transactional_id_authorization_failed,
                "there are records of a transaction, and the request names no transactional id",
            )
            return
        header = read_header(records)
        if header.producer_id >= 0:
            self._producers.add((header.producer_id, header.producer_epoch))
        if len(self._producers) > 1:
            self.refusal = KafkaError(
                ErrorCode.invalid_producer_id_mapping,
                "the transactional records are of more than one producer",
            )


async def verified_batches(
    transactional_id: str,
    produce_version: int,
    batches: Sequence[WaitingBatch],
    verifier: TransactionVerifier,
) -> Sequence[WaitingBatch]:
    """Return the transactional batches that may be appended, once verified.

    The others get their error. All are of one producer (`TransactionalProducers`).
    """
    if not batches:
        return ()
    header = batches[0].header
    operation = TransactionOperation.of_produce(produce_version)
    to_verify = [BatchToVerify(batch.replica, batch.header.base_sequence) for batch in batches]
    transaction = TransactionOfProducer(
        transactional_id, header.producer_id, header.producer_epoch, operation
    )
    await verifier.verify(transaction, to_verify)
    verified = []
    for batch, outcome in zip(batches, to_verify, strict=True):
        if outcome.refusal is None:
            batch.produced.verification = outcome.verification
            verified.append(batch)
        else:
            batch.produced.refuse(_for_producer(outcome.refusal, operation), len(batch.records))
    return verified


def _for_producer(refusal: KafkaError, operation: TransactionOperation) -> KafkaError:
    error_code = refusal.error_code
    if error_code in _UNABLE_TO_VERIFY or (
        error_code is ErrorCode.concurrent_transactions and not operation.supports_epoch_bump
    ):
        return KafkaError(
            ErrorCode.not_enough_replicas,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {error_code.name.upper()}",
        )
    if error_code is ErrorCode.invalid_txn_state:
        return KafkaError(error_code, "Partition was not added to the transaction")
    return refusal
