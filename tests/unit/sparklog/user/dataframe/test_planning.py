"""Offset ranges are split as Spark's Kafka connector does, exactly and deterministically."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.types import TopicPartition
from sparklog.user.dataframe.planning import OffsetRange, split_ranges

FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)


def spans(splits: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.topic_partition.partition, each.start_offset, each.end_offset) for each in splits]


def test_split_without_options_gives_one_task_a_partition() -> None:
    """The default must not change how a job that moves over is parallelised."""
    ranges = [OffsetRange(SECOND, 5, 9), OffsetRange(FIRST, 0, 1_000_000)]
    assert spans(split_ranges(ranges)) == [(0, 0, 1_000_000), (1, 5, 9)]


def test_split_of_empty_ranges_gives_no_task() -> None:
    """An idle partition costs no task."""
    assert split_ranges([OffsetRange(FIRST, 7, 7)], min_partitions=4) == []


def test_split_by_max_records_is_even_and_bounded() -> None:
    """No task gets more than was asked for, and none is left with a crumb."""
    assert spans(split_ranges([OffsetRange(FIRST, 100, 110)], max_records_per_partition=4)) == [
        (0, 100, 103),
        (0, 103, 106),
        (0, 106, 110),
    ]


def test_split_by_min_partitions_is_proportional() -> None:
    """A skewed partition gets most of the tasks."""
    splits = split_ranges([OffsetRange(FIRST, 0, 900), OffsetRange(SECOND, 0, 100)], min_partitions=10)
    assert [each[0] for each in spans(splits)] == [0] * 9 + [1]


def test_split_by_min_partitions_leaves_small_ranges_out_of_the_proportion() -> None:
    """Ranges too small to be cut do not take shares away from the ones that can be."""
    small = [OffsetRange(TopicPartition("s", number), 0, 1) for number in range(3)]
    splits = split_ranges([*small, OffsetRange(FIRST, 0, 1000)], min_partitions=6)
    assert spans(splits)[3:] == [(0, 0, 333), (0, 333, 666), (0, 666, 1000)]


def test_split_by_min_partitions_below_the_number_of_ranges_changes_nothing() -> None:
    """The option is a lower bound."""
    ranges = [OffsetRange(FIRST, 0, 10), OffsetRange(SECOND, 0, 10)]
    assert split_ranges(ranges, min_partitions=2) == ranges


def test_split_by_both_options_applies_the_maximum_first() -> None:
    """Both promises hold: parts no larger than the maximum, and at least about the minimum of them."""
    splits = split_ranges([OffsetRange(FIRST, 0, 100)], min_partitions=8, max_records_per_partition=50)
    assert len(splits) == 8
    assert max(each.size for each in splits) <= 50


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**40), st.integers(0, 10_000)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(500, 10_000),
)
def test_split_of_any_ranges_covers_each_offset_once(
    drawn: list[tuple[int, int, int]], minimum: int | None, maximum: int | None
) -> None:
    """Whatever the options, nothing is read twice and nothing is left out."""
    ranges = {
        number: OffsetRange(TopicPartition("t", number), start, start + size) for number, start, size in drawn
    }
    splits = split_ranges(ranges.values(), min_partitions=minimum, max_records_per_partition=maximum)
    assert all(each.size > 0 for each in splits)
    assert maximum is None or all(each.size <= maximum for each in splits)
    for number, whole in ranges.items():
        parts = [each for each in splits if each.topic_partition.partition == number]
        position = whole.start_offset
        for part in parts:
            assert part.start_offset == position
            position = part.end_offset
        assert position == whole.end_offset
