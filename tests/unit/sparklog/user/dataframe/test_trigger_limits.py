"""How much a micro-batch reads: the connector's rules, by numbers."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.types import TopicPartition
from sparklog.user.dataframe.trigger_limits import NO_LIMITS, Admission, TriggerLimits

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


def test_trigger_limits_without_any_end_at_the_latest() -> None:
    """Whatever is there is read."""
    assert Admission(NO_LIMITS).ends({FIRST: 3}, {FIRST: 10}, 0) == {FIRST: 10}


def test_trigger_limits_of_more_offsets_are_shared_in_proportion() -> None:
    """A busy partition gets most, and a small one is not starved."""
    admission = Admission(TriggerLimits(max_offsets=100))
    ends = admission.ends({FIRST: 0, SECOND: 50, THIRD: 7}, {FIRST: 9_990, SECOND: 60, THIRD: 7}, 0)
    assert ends == {FIRST: 99, SECOND: 51, THIRD: 7}


def test_trigger_limits_of_fewer_offsets_wait_but_not_for_ever() -> None:
    """The first batch comes at once; later ones when there is enough or the delay is over."""
    admission = Admission(TriggerLimits(min_offsets=10, max_delay_ms=1_000))
    assert admission.ends({FIRST: 0}, {FIRST: 1}, 5_000) == {FIRST: 1}
    assert admission.ends({FIRST: 1}, {FIRST: 10}, 5_900) is None
    assert admission.ends({FIRST: 1}, {FIRST: 11}, 5_900) == {FIRST: 11}
    assert admission.ends({FIRST: 11}, {FIRST: 12}, 6_899) is None
    assert admission.ends({FIRST: 11}, {FIRST: 12}, 6_900) == {FIRST: 12}


sizes = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**40)), min_size=1, max_size=6)


@given(sizes, st.integers(1, 2**41))
def test_trigger_limits_batch_after_batch_read_all_and_nothing_beyond(
    ranges: list[tuple[int, int]], limit: int
) -> None:
    """Every batch makes progress wherever there is something, within the limit but for one offset each."""
    starts = {TopicPartition("t", number): start for number, (start, _) in enumerate(ranges)}
    latest = {each: start + ranges[each.partition][1] for each, start in starts.items()}
    ends = Admission(TriggerLimits(max_offsets=limit)).ends(starts, latest, 0)
    assert ends is not None
    assert all(starts[each] <= ends[each] <= latest[each] for each in latest)
    assert all(ends[each] > starts[each] for each in latest if latest[each] > starts[each])
    assert sum(ends[each] - starts[each] for each in latest) <= limit + len(ranges)
