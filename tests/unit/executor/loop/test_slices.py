"""Long work on a loop."""

import asyncio
import weakref

from sparklog.executor.loop.slices import in_slices
from tests.counted_work import counted_turns


def test_slices_of_many_items_let_others_go_first_in_between() -> None:
    """A heartbeat that waits for ten thousand partitions comes too late."""

    async def body() -> tuple[list[list[int]], int]:
        with counted_turns() as turns:
            parts = [list(part) async for part in in_slices(range(10), 4)]
        return parts, turns.value

    assert asyncio.run(body()) == ([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 2)


def test_slices_of_few_items_are_done_at_once() -> None:
    """What is short must not come later than it would without slices."""

    async def body() -> int:
        with counted_turns() as turns:
            assert [list(part) async for part in in_slices("abc", 4)] == [["a", "b", "c"]]
            assert [part async for part in in_slices((), 4)] == []
        return turns.value

    assert asyncio.run(body()) == 0


def test_slices_of_a_mapping_that_changes_meanwhile_are_those_of_its_beginning() -> None:
    """Whoever has his turn in between may add and remove partitions."""

    async def body() -> list[int]:
        items = {1: None, 2: None, 3: None}
        seen = []
        async for part in in_slices(items, 1):
            items.clear()
            seen += part
        return seen

    assert asyncio.run(body()) == [1, 2, 3]


def test_slices_that_are_over_hold_their_items_no_more() -> None:
    """What is dropped a slice at a time must not be closed and freed all at once in the end."""

    class Item:
        pass

    async def body() -> list[int]:
        left = []
        items = [Item() for _ in range(6)]
        alive = [weakref.ref(item) for item in items]
        slices = in_slices((items.pop() for _ in range(6)), 2)
        async for part in slices:
            del part
            left.append(sum(item() is not None for item in alive))
        return left

    assert asyncio.run(body()) == [4, 2, 0]
