"""Deadlines and wake-ups."""

import asyncio

from executor.replication.delayed import RESOLUTION_MS, Deadlines, DelayedOperations
from tests.unit.replication.brokers import until


class Operation:
    """Counts what happens to it."""

    def __init__(self) -> None:
        self.expired = 0
        self.rechecked = 0

    def expire(self) -> None:
        self.expired += 1

    def recheck(self) -> None:
        self.rechecked += 1


def test_deadlines_give_what_is_due_and_never_early() -> None:
    """An operation may expire a little late, but a client that said 50 ms means at least that."""
    deadlines = Deadlines()
    early, late = Operation(), Operation()
    deadlines.add(late, 1001)
    deadlines.add(early, 1000)
    assert deadlines.next_due_ms == 1000
    assert deadlines.take_due(999) == []
    assert deadlines.take_due(1000) == [early]
    assert deadlines.take_due(1001) == []
    assert deadlines.take_due(1000 + RESOLUTION_MS) == [late]
    assert deadlines.next_due_ms is None


def test_deadlines_of_what_completed_in_time_keep_nothing_alive() -> None:
    """Most requests complete; ten thousand a second with 30 s deadlines must not pile up."""
    deadlines = Deadlines()
    for number in range(1000):
        operation = Operation()
        deadlines.discard(operation, deadlines.add(operation, 30_000 + number))
    assert len(deadlines) == 0
    assert len(deadlines._order) <= 1000 / RESOLUTION_MS + 1


def test_delayed_operations_woken_often_in_one_turn_are_rechecked_once() -> None:
    """Many appends that come in one read cost one answer to each follower."""

    async def body() -> Operation:
        delayed = DelayedOperations(asyncio.get_running_loop())
        operation = Operation()
        for _ in range(10):
            delayed.wake(operation)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return operation

    assert asyncio.run(body()).rechecked == 1


def test_delayed_operations_that_left_are_neither_rechecked_nor_expired() -> None:
    """An operation is completed exactly once."""

    async def body() -> Operation:
        delayed = DelayedOperations(asyncio.get_running_loop())
        operation, other = Operation(), Operation()
        bucket = delayed.add(operation, delayed.now_ms() + 10)
        delayed.add(other, delayed.now_ms() + 30)
        delayed.wake(operation)
        delayed.discard(operation, bucket)
        await until(lambda: other.expired == 1, "the later deadline")
        return operation

    operation = asyncio.run(body())
    assert (operation.expired, operation.rechecked) == (0, 0)
