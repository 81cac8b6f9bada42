"""Having a transaction verified before it begins in the offsets' topic (KIP-890).

Source: Kafka's CoordinatorPartitionWriter.maybeStartTransactionVerification; which error clients are told:
CoordinatorOperationExceptionHelper.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.executor.coordinators.machine.coordinator_partition import coordinator_error
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.verification.transaction_verifier import (
    BatchToVerify,
    TransactionOfProducer,
    TransactionVerifier,
)
from sparklog.node.metadata.partition_for import coordinator_partition
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.errors import ErrorCode, KafkaError

Verify = Callable[[str, TransactionOfProducer], Awaitable[tuple[Any, ErrorCode]]]
"""(group, producer's transaction) -> the verification to append the batch with, or why it must not be."""


def verify_in(table: PartitionTable, verifier: TransactionVerifier) -> Verify:
    """Return what has a transaction verified for the partition of a group."""

    async def verify(group_id: str, transaction: TransactionOfProducer) -> tuple[Any, ErrorCode]:
        try:
            found = coordinator_partition(table.image, CONSUMER_OFFSETS_TOPIC, group_id)
        except KafkaError as error:  # an id that no record can name
            return None, error.error_code
        if found is None:
            return None, ErrorCode.not_coordinator
        try:
            batch = BatchToVerify(table.find(CONSUMER_OFFSETS_TOPIC, found[0]), base_sequence=-1)
        except KafkaError:
            return None, ErrorCode.not_coordinator
        await verifier.verify(transaction, [batch])
        if batch.refusal is None:
            return batch.verification, ErrorCode.none
        error_code = batch.refusal.error_code
        if error_code is ErrorCode.network_exception:  # after which older clients would not try again
            return None, ErrorCode.coordinator_load_in_progress
        return None, coordinator_error(error_code)

    return verify
