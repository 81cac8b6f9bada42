"""Verification of transactions' first batches with their coordinators before the append (KIP-890).

Order for the caller: `verify` for the transactional batches of one producer, begun in the turn in
which its partitions were found to be led here; then append each batch that was not refused with its
verification, if its partition is still led in the same leader epoch.

A partition that is in its transaction already costs a look into a dictionary. Where transactions are not of
version 2, transaction.partition.verification.enable switches verification on.
Source: Kafka's ReplicaManager.maybeSendPartitionsToTransactionCoordinator and handleProduceAppend.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.verification.add_partitions_sender import AddPartitionsSender
from sparklog.executor.verification.machine.waiting_additions import TransactionOperation
from sparklog.node.serving.turns import held
from sparklog.node.storage.machine.verification import Verification
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import ProducerEpoch, ProducerId, TimestampMs, TopicPartition

_RETRIABLE = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.operation_not_attempted,
    }
)
"""After these the same batch may come again."""


class TransactionOfProducer(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    operation: TransactionOperation


class BatchToVerify:
    """A batch that may be the first of its transaction in a partition."""

    __slots__ = ("base_sequence", "refusal", "replica", "verification")

    def __init__(self, replica: Replica, base_sequence: int) -> None:
        self.replica = replica
        self.base_sequence = base_sequence
        """-1 for a coordinator's, which has none."""
        self.verification: Verification | None = None
        """The verification for the append; None if it needs none."""
        self.refusal: KafkaError | None = None
        """The error of the coordinator or the partition; None if the batch may be appended."""


class TransactionVerifier:
    """The verifications of one broker; belongs to its event loop."""

    def __init__(
        self,
        sender: AddPartitionsSender,
        wall_ms: Callable[[], TimestampMs],
        *,
        retry_backoff_ms: int,
        retry_timeout_ms: int,
    ) -> None:
        """Send by `sender`, and retry up to the timeout while the producer's last transaction ends."""
        self._sender = sender
        self._wall_ms = wall_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_timeout_ms = retry_timeout_ms

    async def verify(self, transaction: TransactionOfProducer, batches: Sequence[BatchToVerify]) -> None:
        """Verify each batch that needs it; a cancelled caller sends no further requests.

        No two of the batches are of one partition. Errors of the request are raised: its batches are not
        verified.
        """
        asked = self._to_ask(transaction, batches)
        if asked:
            await held(self._ask(transaction, asked))

    async def close(self) -> None:
        """Send no more requests; waiting callers get no answer."""
        await self._sender.close()

    def _to_ask(
        self, transaction: TransactionOfProducer, batches: Sequence[BatchToVerify]
    ) -> list[BatchToVerify]:
        asked: list[BatchToVerify] = []
        supports_epoch_bump = transaction.operation.supports_epoch_bump
        for batch in batches:
            _forget(batch, for_good=False)
            batch.refusal = None
            log = batch.replica.log
            if not (supports_epoch_bump or log.config.transaction_partition_verification):
                continue
            try:
                batch.replica.require_leader()
                batch.verification = log.producers.begin_verification(
                    transaction.producer_id,
                    transaction.producer_epoch,
                    batch.base_sequence,
                    self._wall_ms(),
                    supports_epoch_bump=supports_epoch_bump,
                )
            except KafkaError as error:
                batch.refusal = error
            else:
                if batch.verification is not None:
                    asked.append(batch)
        return asked

    async def _ask(self, transaction: TransactionOfProducer, asked: list[BatchToVerify]) -> None:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._retry_timeout_ms / 1000
        while asked:
            by_name: dict[TopicPartition, BatchToVerify] = {
                batch.replica.topic_partition: batch for batch in asked
            }
            unverified = await self._sender.ask(*transaction[:3], list(by_name), transaction.operation)
            if (
                transaction.operation.supports_epoch_bump
                and ErrorCode.concurrent_transactions in unverified.values()
                and loop.time() < give_up_s
            ):
                await asyncio.sleep(self._retry_backoff_ms / 1000)
                asked = self._to_ask(transaction, asked)
                continue
            for name, error_code in unverified.items():
                if name in by_name:
                    _refuse(by_name[name], error_code)
            return


def _refuse(batch: BatchToVerify, error_code: ErrorCode) -> None:
    _forget(batch, for_good=error_code not in _RETRIABLE)
    batch.refusal = KafkaError(error_code, f"the transaction's coordinator says so of {batch.replica}")


def _forget(batch: BatchToVerify, *, for_good: bool) -> None:
    verification, batch.verification = batch.verification, None
    if verification is not None:
        batch.replica.log.producers.verifications.refused(verification, for_good=for_good)
