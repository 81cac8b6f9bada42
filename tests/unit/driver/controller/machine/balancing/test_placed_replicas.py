"""The replicas by broker: equal to those counted from the beginning, after any changes."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.controller.machine.balancing.placed_replicas import PlacedReplicas, in_parts
from sparklog.protocol.types import TopicIdPartition

PARTITIONS = [TopicIdPartition(UUID(int=topic), number) for topic in (1, 2) for number in range(3)]
REPLICAS = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(tuple)


@given(st.lists(st.tuples(st.sampled_from(PARTITIONS), st.none() | REPLICAS)))
def test_placed_replicas_after_any_changes_equal_those_counted_from_the_beginning(
    changes: list[tuple[TopicIdPartition, tuple[int, ...] | None]],
) -> None:
    """A wrong count moves replicas for ever."""
    placed, present = PlacedReplicas(), {}
    for partition, replicas in changes:
        if replicas is None:
            placed.remove(partition)
            present.pop(partition, None)
        else:
            placed.place(partition, replicas)
            present[partition] = replicas
    counted = PlacedReplicas(present)
    assert placed.replicas == counted.replicas
    assert {each: set(held) for each, held in placed.held.items() if held} == {
        each: set(held) for each, held in counted.held.items()
    }
    assert +placed.led == counted.led
    for of_topic, expected in (
        (placed.held_of_topic, counted.held_of_topic),
        (placed.led_of_topic, counted.led_of_topic),
    ):
        assert {each: counts for each, counts in of_topic.items() if counts} == {
            each: counts for each, counts in expected.items() if counts
        }


def test_partitions_in_parts_are_all_once_unless_they_change() -> None:
    """A partition that is left out is not balanced."""
    many = {TopicIdPartition(UUID(int=1), number): None for number in range(1_000)}
    assert list(in_parts(many)) == list(many)
    seen = []
    for key in in_parts(many):
        seen.append(key)
        many.pop(key)
    assert len(seen) > 500
