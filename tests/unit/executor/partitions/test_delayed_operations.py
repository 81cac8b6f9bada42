"""Deadlines and wake-ups."""

import asyncio
import tracemalloc
from selectors import SelectorKey

from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.partitions import delayed_operations
from sparklog.executor.partitions.delayed_operations import RESOLUTION_MS, Deadlines, DelayedOperations
from sparklog.node.loop.turn_loop import TurnLoop, TurnSelector
from tests.unit.executor.brokers import until


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


def test_deadlines_far_away_that_were_left_again_keep_no_memory() -> None:
    """How long a fetch may wait is the client's choice: weeks, and another time at each request."""
    deadlines = Deadlines()
    waiting, done = Operation(), Operation()
    deadlines.add(waiting, 5_000_000)
    deadlines.add(done, 10)
    tracemalloc.start()
    try:
        for number in range(20_000):
            deadlines.discard(done, deadlines.add(done, 1_000_000 + number * RESOLUTION_MS))
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    # Threads that other tests of this process have left allocate as well.
    ours = [tracemalloc.Filter(True, name) for name in (delayed_operations.__file__, __file__)]
    kept_bytes = sum(statistic.size for statistic in taken.filter_traces(ours).statistics("filename"))
    assert kept_bytes < 50_000, "each of 20,000 buckets would be 200 bytes"
    assert deadlines.take_due(10) == [done]
    assert deadlines.next_due_ms is not None
    assert deadlines.take_due(1_000_000 + 20_000 * RESOLUTION_MS) == []
    assert deadlines.take_due(5_000_000) == [waiting]
    assert deadlines.next_due_ms is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3_000), st.booleans()), max_size=300))
def test_deadlines_of_any_history_give_exactly_what_still_waits(
    history: list[tuple[int, int, bool]],
) -> None:
    """Sweeping must neither lose an operation nor bring one back."""
    deadlines = Deadlines()
    waiting: dict[Operation, tuple[int, int]] = {}
    for spread, asked_ms, completes in history:
        # More buckets than are kept empty, or sweeping would never begin.
        operation, deadline_ms = Operation(), asked_ms * (1 + spread)
        waiting[operation] = deadline_ms, deadlines.add(operation, deadline_ms)
        if completes:
            oldest = next(iter(waiting))
            deadlines.discard(oldest, waiting.pop(oldest)[1])
    assert len(deadlines) == len(waiting)
    half_ms = 1_500
    assert set(deadlines.take_due(half_ms)) == {
        operation for operation, (_, bucket) in waiting.items() if bucket * RESOLUTION_MS <= half_ms
    }
    assert set(deadlines.take_due(1 << 40)) == {
        operation for operation, (_, bucket) in waiting.items() if bucket * RESOLUTION_MS > half_ms
    }


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


def test_delayed_operations_woken_on_a_broker_are_rechecked_before_it_looks_at_its_sockets() -> None:
    """Followers wait for what a producer has sent, and the producer for them."""

    class CountingSelector(TurnSelector):
        looks = 0

        def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
            events = super().select(timeout)
            self.looks += 1
            return events

    class Looking(Operation):
        def recheck(self) -> None:
            looks.append(selector.looks)

    async def body() -> None:
        DelayedOperations(asyncio.get_running_loop()).wake(Looking())
        looks.append(selector.looks)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    looks: list[int] = []
    selector = CountingSelector()
    with asyncio.Runner(loop_factory=lambda: TurnLoop(selector)) as runner:
        runner.run(body())
    assert len(looks) == 2 and looks[0] == looks[1]


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


def test_operation_that_fails_keeps_no_other_waiting() -> None:
    """Those behind it are in no bucket any more, and nobody would come for those of later ones."""

    class Broken(Operation):
        def expire(self) -> None:
            raise RuntimeError("no answer could be made")

        recheck = expire

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        delayed = DelayedOperations(loop)
        woken, due, later = Operation(), Operation(), Operation()
        for operation in (Broken(), woken):
            delayed.wake(operation)
        now_ms = delayed.now_ms()
        for operation in (Broken(), due):
            delayed.add(operation, now_ms)
        delayed.add(later, now_ms + 3 * RESOLUTION_MS)
        await until(lambda: bool(woken.rechecked and due.expired and later.expired), "all others")
        assert [str(each) for each in failures] == ["no answer could be made"] * 2

    asyncio.run(scenario())
