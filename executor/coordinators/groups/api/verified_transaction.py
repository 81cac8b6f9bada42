"""Verification of a transaction before it begins in the offsets' topic (KIP-890).

Source: Kafka's CoordinatorPartitionWriter.maybeStartTransactionVerification; for the error codes of clients,
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
"""(group, producer's transaction) -> verification for the batch's append, or the error that forbids it."""


def verify_in(table: PartitionTable, verifier: TransactionVerifier) -> Verify:
    async def verify(group_id: str, transaction: TransactionOfProducer) -> tuple[Any, ErrorCode]:
        try:
            found = coordinator_partition(table.image, CONSUMER_OFFSETS_TOPIC, group_id)
        except KafkaError as error:  # an id that no record can hold
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
        if error_code is ErrorCode.network_exception:  # older clients do not retry this error
            return None, ErrorCode.coordinator_load_in_progress
        return None, coordinator_error(error_code)

    return verify
