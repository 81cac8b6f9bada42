"""Groups as an operator looks for them: in between first, then by how far they are behind."""

from sparklog.driver.ui.machine.groups import (
    Extent,
    GroupPartition,
    by_trouble,
    group_status,
    lag_of,
    summaries,
)
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.groups import CommittedOffset, GroupDescription, GroupMember, ListedGroup

FIRST, SECOND, THIRD = (TopicPartition("flights", number) for number in range(3))


def listed(group_id: str, state: str, group_type: str = "Classic") -> ListedGroup:
    return ListedGroup(group_id, group_type, state, "consumer", 1)


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, None, "")


def described(group_id: str, *members: GroupMember) -> GroupDescription:
    return GroupDescription(group_id, "classic", "Stable", "consumer", "range", members)


def member(member_id: str, *partitions: TopicPartition) -> GroupMember:
    return GroupMember(member_id, None, "client", "/127.0.0.1", partitions)


def test_groups_that_read_nothing_come_before_those_that_do() -> None:
    """Of ten thousand groups the first page is what is looked at."""
    groups = [
        listed("a", "Stable"),
        listed("b", "Empty"),
        listed("c", "Reconciling"),
        listed("d", "PreparingRebalance"),
        listed("e", "Dead"),
        listed("f", "SomethingNew"),
    ]
    assert [group.group_id for group in by_trouble(groups)] == ["f", "d", "c", "b", "a", "e"]


def test_groups_of_a_state_come_by_their_lag() -> None:
    """Who is furthest behind is who somebody has called about; unknown is not zero."""
    groups = [listed(name, "Stable") for name in "abc"] + [listed("d", "Empty")]
    shown = summaries(
        groups,
        {"b": described("b", member("m", FIRST))},
        {"a": {FIRST: committed(5)}, "b": {FIRST: committed(3), SECOND: committed(0)}, "d": {}},
        {FIRST: Extent(10), SECOND: Extent(2)},
    )
    assert [(each.group_id, each.members, each.partitions, each.lag) for each in shown] == [
        ("d", None, 0, None),
        ("b", 1, 2, 9),
        ("a", None, 1, 5),
        ("c", None, None, None),
    ]


def test_group_has_what_is_committed_and_what_is_assigned() -> None:
    """A partition that is read and never committed is what is wrong in many a group."""
    group = group_status(
        described("g", member("m", FIRST, SECOND)),
        1,
        {FIRST: committed(4), THIRD: committed(1)},
        {FIRST: Extent(5), THIRD: Extent(9)},
    )
    assert [
        (each.partition, each.committed_offset, each.high_watermark, each.lag, each.member_id)
        for each in group.partitions
    ] == [(2, 1, 9, 8, None), (0, 4, 5, 1, "m"), (1, None, None, None, "m")]
    assert group.lag == 9
    assert isinstance(group.partitions[0], GroupPartition)


def test_offsets_behind_the_end_of_a_topic_made_anew_are_no_negative_lag() -> None:
    """A deleted topic's offsets live on under its name."""
    assert lag_of({FIRST: committed(100)}, {FIRST: Extent(3)}) == 0


def test_records_that_retention_has_removed_are_no_lag() -> None:
    """A group that comes back after its records are gone goes on at the start of the log."""
    group = group_status(
        described("g", member("m", FIRST)), 1, {FIRST: committed(4)}, {FIRST: Extent(10, log_start_offset=8)}
    )
    assert (group.lag, group.partitions[0].lag, group.partitions[0].high_watermark) == (2, 2, 10)
