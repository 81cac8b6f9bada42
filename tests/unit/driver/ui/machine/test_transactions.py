"""Transactions as an operator hunts for them: what is old, what waits for whom, what nobody will ever end."""

from collections.abc import Mapping
from typing import Any

from sparklog.driver.ui.machine.transactions import (
    GRACE_MS,
    TransactionRemark,
    oldest_first,
    prepared_since,
    producer_rows,
    unknown_to_coordinators,
)
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.transactions import ActiveProducer, TransactionDescription

NOW_MS = 10_000_000
HERE, ELSEWHERE = TopicPartition("orders", 3), TopicPartition("orders", 4)


def transaction(transactional_id: str, age_ms: int, **others: Any) -> TransactionDescription:
    given: Mapping[str, Any] = {
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 1,
        "timeout_ms": 60_000,
        "started_ms": NOW_MS - age_ms,
        "partitions": (HERE,),
        **others,
    }
    return TransactionDescription(transactional_id, **given)


def producer(producer_id: int, start_offset: int | None, idle_ms: int = 600_000) -> ActiveProducer:
    return ActiveProducer(producer_id, 0, 5, NOW_MS - idle_ms, None, start_offset)


def remarks(
    *described: TransactionDescription, decided_for_ms: int = 0
) -> dict[str, TransactionRemark | None]:
    since = prepared_since(described, {}, 0)
    shown = oldest_first(
        described,
        {each.transactional_id: 1 for each in described},
        dict.fromkeys(since, decided_for_ms),
        NOW_MS,
    )
    return {each.transactional_id: each.remark for each in shown}


def test_oldest_transaction_comes_first_and_what_is_wrong_with_each_is_said() -> None:
    """Readers wait for the oldest one; whether to do something depends on what it waits for."""
    shown = remarks(
        transaction("young", 1_000),
        transaction("long", 61_000, timeout_ms=900_000),
        transaction("overdue", 60_000 + GRACE_MS + 1),
        transaction("prepared", 500, timeout_ms=None),
        transaction("ended", 5_000_000, state="CompleteCommit"),
    )
    assert list(shown.items()) == [
        ("overdue", TransactionRemark.OVERDUE),
        ("long", TransactionRemark.LONG),
        ("young", None),
        ("prepared", TransactionRemark.UNDECIDED),
    ]


def test_decided_transaction_is_marked_once_its_markers_are_late() -> None:
    """Markers take moments; since when they are on their way no broker says, so it is what was seen."""
    decided = transaction("t", 900_000, state="PrepareAbort")
    assert remarks(decided) == {"t": None}
    assert remarks(decided, decided_for_ms=GRACE_MS + 1) == {"t": TransactionRemark.STUCK}


def test_decision_is_seen_since_the_first_look_that_found_it() -> None:
    """The next transaction of the same id begins anew."""
    first = transaction("t", 0, state="PrepareCommit")
    before = prepared_since([first], {}, 5)
    assert list(prepared_since([first], before, 9).values()) == [5]
    assert list(prepared_since([first._replace(producer_epoch=2)], before, 9).values()) == [9]
    assert prepared_since([first._replace(state="Ongoing")], before, 9) == {}


def test_transaction_hangs_if_no_coordinator_has_the_partition_in_one() -> None:
    """A mark on a transaction that lives would have an operator abort it."""
    producers = [
        producer(1, 10),
        producer(2, 20),
        producer(3, 30),
        producer(4, 40, idle_ms=1_000),
        producer(5, None),
    ]
    described = {
        2: transaction("lives", 0),
        3: transaction("of another partition", 0, partitions=(ELSEWHERE,)),
    }
    assert unknown_to_coordinators(producers, described, HERE, NOW_MS) == {1: 10, 3: 30}


def test_producers_with_open_transactions_come_first_and_the_oldest_of_them() -> None:
    """The last stable offset is where the first of them begins."""
    rows = producer_rows(
        [producer(1, None, idle_ms=5), producer(2, 20), producer(3, 10), producer(4, None, idle_ms=1)],
        {2: transaction("t", 0)},
        {3: 10, 2: 19},
    )
    assert [(row.producer_id, row.is_hanging, row.transactional_id) for row in rows] == [
        (3, True, None),
        (2, False, "t"),
        (4, False, None),
        (1, False, None),
    ]
