"""Which questions to a transaction coordinator go together, and how they are answered."""

import datetime
from typing import Any

import pytest
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

from sparklog.executor.verification.machine.waiting_additions import (
    Addition,
    TransactionOperation,
    Unverified,
    WaitingAdditions,
)
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NEW = TransactionOperation.ADD_PARTITION


class Asked:
    """Questions, and the answers they got."""

    def __init__(self) -> None:
        self.waiting = WaitingAdditions()
        self.answers: list[tuple[str, Unverified]] = []

    def add(
        self,
        name: str,
        *partitions: TopicPartition,
        producer_id: int = 1,
        epoch: int = 0,
        operation: TransactionOperation = NEW,
    ) -> Addition:
        def answered(unverified: Unverified) -> None:
            self.answers.append((name, unverified))

        addition = Addition(name, producer_id, epoch, partitions, operation, answered)
        self.waiting.add(addition)
        return addition

    def next(self) -> list[Any]:
        """Return what is asked next: ids, epochs, and partitions by topic."""
        return [
            (
                each.transactional_id,
                each.producer_epoch,
                {topic.name: topic.partitions for topic in each.topics},
                each.verify_only,
            )
            for each in self.waiting.next_transactions()
        ]


def response(
    *results: tuple[str, TopicPartition, ErrorCode], error_code: ErrorCode = ErrorCode.none
) -> AddPartitionsToTxnResponse:
    """An answer with a row for each partition."""
    return AddPartitionsToTxnResponse(
        throttle_time=datetime.timedelta(),
        error_code=error_code,
        results_by_transaction=tuple(
            AddPartitionsToTxnResult(
                transactional_id=name,
                topic_results=(
                    AddPartitionsToTxnTopicResult(
                        name=partition.topic,
                        results_by_partition=(
                            AddPartitionsToTxnPartitionResult(
                                partition_index=partition.partition, partition_error_code=code
                            ),
                        ),
                    ),
                ),
            )
            for name, partition, code in results
        ),
    )


def test_questions_asked_while_a_request_is_under_way_go_together_into_the_next() -> None:
    """A thousand producers are one request, not a thousand."""
    asked = Asked()
    asked.add("a", T0, T1, U0)
    assert asked.next() == [("a", 0, {"t": (0, 1), "u": (0,)}, False)]
    asked.add("b", T0, operation=TransactionOperation.DEFAULT_ERROR)
    asked.add("c", T1)
    asked.waiting.answered(response(("a", T1, ErrorCode.invalid_txn_state)))
    assert asked.answers == [("a", {T1: ErrorCode.invalid_txn_state})]
    assert asked.next() == [("b", 0, {"t": (0,)}, True), ("c", 0, {"t": (1,)}, False)]
    asked.waiting.answered(response(("c", T1, ErrorCode.none), ("b", T0, ErrorCode.none)))
    assert asked.answers[1:] == [("c", {}), ("b", {})]
    assert asked.next() == []


def test_questions_about_one_transactional_id_are_asked_one_after_the_other() -> None:
    """A request has each id once, and the partitions of both are to be known of."""
    asked = Asked()
    asked.add("a", T0)
    asked.add("a", T1)
    assert asked.next() == [("a", 0, {"t": (0,)}, False)]
    asked.waiting.answered(response(("a", T0, ErrorCode.none)))
    assert asked.next() == [("a", 0, {"t": (1,)}, False)]


def test_question_of_a_fenced_epoch_is_not_asked() -> None:
    """Whichever came first: the newer producer has the id."""
    asked = Asked()
    asked.add("a", T0, epoch=3)
    asked.add("a", T1, epoch=4)
    assert asked.answers == [("a", {T0: ErrorCode.invalid_producer_epoch})]
    asked.add("a", U0, epoch=3)
    assert asked.answers[1:] == [("a", {U0: ErrorCode.invalid_producer_epoch})]
    asked.add("a", U0, producer_id=2, epoch=0)
    assert asked.next() == [("a", 4, {"t": (1,)}, False)]
    asked.waiting.answered(None)
    assert asked.next() == [("a", 0, {"u": (0,)}, False)]


def test_request_is_bounded_and_the_rest_goes_into_the_next() -> None:
    """The coordinator takes no request of a million transactions."""
    asked = Asked()
    for number in range(1_500):
        asked.add(str(number), T0)
    assert len(asked.next()) == 1_000
    asked.waiting.answered(None)
    assert len(asked.next()) == 500
    asked.waiting.answered(None)
    assert len(asked.answers) == 1_500
    asked.add("huge", *(TopicPartition("t", number) for number in range(5_000)))
    assert len(asked.next()) == 1, "one that is larger alone is asked all the same"


def test_question_that_nobody_waits_for_is_not_asked() -> None:
    """Its connection was lost."""
    asked = Asked()
    asked.waiting.forget(asked.add("a", T0))
    assert asked.next() == []
    addition = asked.add("a", T0)
    assert len(asked.next()) == 1
    asked.waiting.forget(addition)
    asked.waiting.answered(None)
    assert asked.next() == []


@pytest.mark.parametrize(
    ("operation", "told", "expected"),
    [
        (TransactionOperation.DEFAULT_ERROR, "transaction_abortable", "invalid_txn_state"),
        (TransactionOperation.GENERIC_ERROR_SUPPORTED, "transaction_abortable", "transaction_abortable"),
        (NEW, "transaction_abortable", "transaction_abortable"),
        (NEW, "producer_fenced", "invalid_producer_epoch"),
        (NEW, "concurrent_transactions", "concurrent_transactions"),
    ],
)
def test_answer_is_one_that_the_client_knows(
    operation: TransactionOperation, told: str, expected: str
) -> None:
    """An older client would take an error that it does not know for the end."""
    asked = Asked()
    asked.add("a", T0, operation=operation)
    asked.next()
    asked.waiting.answered(response(("a", T0, ErrorCode[told])))
    assert asked.answers == [("a", {T0: ErrorCode[expected]})]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, "network_exception"),
        (response(), "network_exception"),
        (response(error_code=ErrorCode.cluster_authorization_failed), "invalid_txn_state"),
        (response(error_code=ErrorCode.not_coordinator), "not_coordinator"),
    ],
)
def test_request_that_fails_as_a_whole_is_told_to_all(answer: Any, expected: str) -> None:
    """Nobody waits for ever, whatever a coordinator leaves out."""
    asked = Asked()
    asked.add("a", T0)
    asked.add("b", T1)
    asked.next()
    asked.waiting.answered(answer)
    error_code = ErrorCode[expected]
    assert asked.answers == [("a", {T0: error_code}), ("b", {T1: error_code})]


def test_operation_follows_from_the_version() -> None:
    """Produce 12 and TxnOffsetCommit 5 are of transactions version 2."""
    assert [TransactionOperation.of_produce(version).value for version in (10, 11, 12, 13)] == [0, 1, 2, 2]
    assert [TransactionOperation.of_txn_offset_commit(version).value for version in (3, 4, 5)] == [0, 1, 2]
