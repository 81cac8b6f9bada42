"""Records of `__transaction_state`: one for each transactional id.

Source: Kafka's message definitions, transaction-coordinator/src/main/resources/common/message, as of 4.3.1.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from sparklog.executor.coordinators.records.entities import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    CoordinatorKey,
    CoordinatorValue,
    NestedEntity,
    in_versions,
    tagged,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKey(CoordinatorKey):
    __api_key__: ClassVar[int] = 0
    transactional_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsSchema(NestedEntity):
    topic: str = field(metadata=STRING)
    partition_ids: tuple[int, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValue(CoordinatorValue):
    """State of the transaction of a transactional id.

    `transaction_status` is Kafka's TransactionState id: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort,
    4 CompleteCommit, 5 CompleteAbort, 6 Dead, 7 PrepareEpochFence. Version 0 lacks the fields of KIP-890.
    """

    __api_key__: ClassVar[int] = 0
    __highest_version__: ClassVar[int] = 1
    __first_flexible_version__: ClassVar[int] = 1
    producer_id: int = field(metadata=INT64)
    previous_producer_id: int = field(metadata=in_versions(tagged(INT64, 0), 1), default=-1)
    next_producer_id: int = field(metadata=in_versions(tagged(INT64, 1), 1), default=-1)
    producer_epoch: int = field(metadata=INT16)
    next_producer_epoch: int = field(metadata=in_versions(tagged(INT16, 3), 1), default=-1)
    transaction_timeout_ms: int = field(metadata=INT32)
    transaction_status: int = field(metadata=INT8)
    transaction_partitions: tuple[PartitionsSchema, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata=INT64)
    transaction_start_timestamp_ms: int = field(metadata=INT64)
    client_transaction_version: int = field(metadata=in_versions(tagged(INT16, 2), 1), default=0)
