"""Partitions that are left alone: each for its time, and their ends in small parts."""

from uuid import UUID

from sparklog.driver.controller.machine.balancing.left_alone import LEFT_ALONE_MS, LeftAlone
from sparklog.protocol.types import TopicIdPartition

KEYS = [TopicIdPartition(UUID(int=1), number) for number in range(10_000)]


def test_partition_noted_again_is_left_alone_from_then_on() -> None:
    """The second decision of an administrator counts as much as the first."""
    left_alone = LeftAlone()
    left_alone.add(KEYS[0], 0)
    left_alone.add(KEYS[1], 1)
    left_alone.add(KEYS[0], 2)
    assert left_alone.expire(LEFT_ALONE_MS + 1)
    assert KEYS[0] in left_alone
    assert KEYS[1] not in left_alone
    assert not left_alone.expire(LEFT_ALONE_MS + 1)
    assert left_alone.expire(LEFT_ALONE_MS + 2)
    assert KEYS[0] not in left_alone


def test_many_that_end_together_end_in_parts() -> None:
    """Two hundred thousand at once would hold up every heartbeat for 80 ms."""
    left_alone = LeftAlone()
    for key in KEYS:
        left_alone.add(key, 0)
    assert left_alone.expire(LEFT_ALONE_MS)
    assert KEYS[0] not in left_alone
    assert KEYS[-1] in left_alone
    parts = 1
    while KEYS[-1] in left_alone:
        assert left_alone.expire(LEFT_ALONE_MS)
        parts += 1
    assert parts == 10
