"""What full collections look at in a broker's process."""

import gc
import weakref

from sparklog.node.loop.garbage import MUCH_OBJECTS, freezing_survivors


class Node:
    """Something that may refer to itself."""

    def __init__(self) -> None:
        self.neighbour: Node | None = None


def test_full_collections_look_at_what_is_new_when_very_much_is_kept() -> None:
    """Ten thousand logs are half a million objects: looked at together they hold the loop."""
    looked_at: list[int] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looked_at.append(len(gc.get_objects()))

    with freezing_survivors():
        doublings = (30 * MUCH_OBJECTS // gc.get_freeze_count()).bit_length()
        gc.callbacks.append(collecting)
        try:
            kept = [Node() for _ in range(30 * MUCH_OBJECTS)]
            gc.collect()
        finally:
            gc.callbacks.remove(collecting)
        assert gc.get_freeze_count() > 29 * MUCH_OBJECTS
    assert len(kept) == 30 * MUCH_OBJECTS
    assert len(looked_at) > 10, "each looks at a part"
    # But for those at which the process has doubled.
    assert sum(count >= 6 * MUCH_OBJECTS for count in looked_at) <= doublings + 1


def test_cycles_among_few_objects_are_found_however_old_they_are() -> None:
    """A connection may live for hours before it becomes a cycle that only a collection finds."""
    with freezing_survivors():
        node = Node()
        gc.collect()
        gc.collect()
        node.neighbour = node
        seen = weakref.ref(node)
        del node
        gc.collect()
        assert seen() is None


def test_collector_is_as_before_when_the_broker_has_ended() -> None:
    """Spark may give the process to another task."""
    before = gc.get_threshold(), list(gc.callbacks)
    with freezing_survivors():
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0
