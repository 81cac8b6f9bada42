"""Copies: a bounded number for a broker, and a bounded time in which they hold others up."""

from uuid import UUID

from sparklog.driver.controller.machine.balancing.copy_slots import COPIES_PER_BROKER, OVERDUE_MS, CopySlots
from sparklog.protocol.types import TopicIdPartition

KEYS = [TopicIdPartition(UUID(int=1), number) for number in range(10)]


def test_broker_with_all_its_copies_is_busy_until_one_ends() -> None:
    """All at once would take its network from clients."""
    slots = CopySlots()
    for key in KEYS[:COPIES_PER_BROKER]:
        assert not slots.is_busy(4)
        assert slots.note(key, (4,), 0)
    assert slots.is_busy(4)
    assert not slots.note(KEYS[0], (4,), 5), "it goes on"
    assert slots.note(KEYS[0], (), 5)
    assert not slots.is_busy(4)
    assert len(slots) == COPIES_PER_BROKER - 1


def test_copy_that_is_overdue_is_found_once_and_keeps_its_broker_busy_to_its_end() -> None:
    """It holds nothing up any longer, but more copies for its broker would be as late."""
    slots = CopySlots()
    slots.note(KEYS[0], (4, 5), 0)
    slots.note(KEYS[1], (6,), 1)
    assert slots.find_overdue(OVERDUE_MS - 1) == {}
    assert list(slots.find_overdue(OVERDUE_MS)) == [KEYS[0]]
    assert slots.find_overdue(OVERDUE_MS) == {}
    assert len(slots) == 1
    assert slots.is_stuck(4)
    assert slots.note(KEYS[0], (5,), OVERDUE_MS + 1)
    assert not slots.is_busy(4)
    assert slots.is_stuck(5)
    assert slots.note(KEYS[0], (7,), OVERDUE_MS + 2), "it is another move now"
    assert not slots.is_stuck(5)
    assert not slots.is_stuck(7)
    assert len(slots) == 2
