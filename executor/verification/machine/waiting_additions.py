"""The transactions to verify with one coordinator, many in one AddPartitionsToTxn (KIP-890).

Before the first batch of a transaction is appended, the transaction's coordinator is asked whether the
partition is in it, or, since transactions version 2, to put it there.

Pure. At most one request is under way to a broker; what is asked meanwhile goes into the next, one of
each transactional id. Each question is answered exactly once: with the partitions that may not be appended to
and why. Asking again is the producer's business, but for CONCURRENT_TRANSACTIONS (`TransactionVerifier`).

Order for the caller: `add` at any time; `next_transactions`, and while it returns some, send them, report
what came of it to `answered`, and ask again.

Source: Kafka's AddPartitionsToTxnManager.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction

from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import ProducerEpoch, ProducerId, TopicPartition

_PARTITIONS_A_REQUEST: Final = 1_000
"""A coordinator reads so many in one go, each in a transaction of its own."""

Unverified: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""The partitions that may not be appended to, and why."""


class TransactionOperation(Enum):
    """The client's level of transactions, by the version of the request with its records."""

    DEFAULT_ERROR = 0
    """It gets INVALID_TXN_STATE where newer ones get TRANSACTION_ABORTABLE,"""
    GENERIC_ERROR_SUPPORTED = 1
    """knows TRANSACTION_ABORTABLE,"""
    ADD_PARTITION = 2
    """and has partitions added by the broker; each transaction has an epoch of its own."""

    @property
    def supports_epoch_bump(self) -> bool:
        """Whether the transaction is of version 2."""
        return self is TransactionOperation.ADD_PARTITION

    @classmethod
    def of_produce(cls, version: int) -> "TransactionOperation":
        return cls(0 if version < 11 else 1 if version < 12 else 2)

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> "TransactionOperation":
        return cls(0 if version < 4 else 1 if version < 5 else 2)


class Addition(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: Sequence[TopicPartition]
    operation: TransactionOperation
    answered: Callable[[Unverified], None]

    def fail(self, error_code: ErrorCode) -> None:
        self.answered(dict.fromkeys(self.partitions, error_code))


class WaitingAdditions:
    """The additions that one coordinator has not answered yet."""

    def __init__(self) -> None:
        self._waiting: list[Addition] = []
        self._under_way: dict[str, Addition] = {}

    def add(self, addition: Addition) -> None:
        """Queue an addition for the next requests; one that is fenced by another is not sent."""
        fenced: list[Addition] = []
        for waiting in self._waiting:
            if waiting[:2] == addition[:2]:
                if waiting.producer_epoch > addition.producer_epoch:
                    addition.fail(ErrorCode.invalid_producer_epoch)
                    return
                if waiting.producer_epoch < addition.producer_epoch:
                    fenced.append(waiting)
        for waiting in fenced:
            self._waiting.remove(waiting)
        self._waiting.append(addition)
        for waiting in fenced:
            waiting.fail(ErrorCode.invalid_producer_epoch)

    def forget(self, addition: Addition) -> None:
        """Drop an addition for which no request waits any more."""
        if addition in self._waiting:
            self._waiting.remove(addition)

    def next_transactions(self) -> Sequence[AddPartitionsToTxnTransaction]:
        """Return the next request's transactions, the oldest addition of each transactional id."""
        assert not self._under_way, "one request at a time"
        left: list[Addition] = []
        partition_count = 0
        for addition in self._waiting:
            partition_count += len(addition.partitions)
            if addition.transactional_id in self._under_way or (
                self._under_way and partition_count > _PARTITIONS_A_REQUEST
            ):
                left.append(addition)
            else:
                self._under_way[addition.transactional_id] = addition
        self._waiting = left
        return tuple(_transaction(addition) for addition in self._under_way.values())

    def answered(self, response: Any) -> None:
        """Answer all additions of the last request; `response` is None if it was lost."""
        under_way, self._under_way = self._under_way, {}
        error_code = ErrorCode.network_exception if response is None else response.error_code
        if error_code is not ErrorCode.none:
            if error_code is ErrorCode.cluster_authorization_failed:
                # Not the client's: it is this broker that may not ask.
                error_code = ErrorCode.invalid_txn_state
            for addition in under_way.values():
                addition.fail(error_code)
            return
        for result in response.results_by_transaction:
            known = under_way.pop(result.transactional_id, None)
            if known is not None:
                known.answered(_unverified(known.operation, result))
        for addition in under_way.values():
            addition.fail(ErrorCode.network_exception)


def _transaction(addition: Addition) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in addition.partitions:
        by_topic.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=addition.transactional_id,
        producer_id=addition.producer_id,
        producer_epoch=addition.producer_epoch,
        verify_only=not addition.operation.supports_epoch_bump,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        ),
    )


def _unverified(operation: TransactionOperation, result: Any) -> Unverified:
    return {
        TopicPartition(topic.name, partition.partition_index): _for_client(
            operation, partition.partition_error_code
        )
        for topic in result.topic_results
        for partition in topic.results_by_partition
        if partition.partition_error_code is not ErrorCode.none
    }


def _for_client(operation: TransactionOperation, error_code: ErrorCode) -> ErrorCode:
    if error_code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error_code is ErrorCode.transaction_abortable and operation is TransactionOperation.DEFAULT_ERROR:
        return ErrorCode.invalid_txn_state
    return error_code
