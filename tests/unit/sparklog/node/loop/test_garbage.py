"""What full collections look at in the process of a broker: each test has one that has just started."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.node.loop.garbage import (
    MANY_THINGS,
    MUCH_OBJECTS,
    freezing_survivors,
    making_lasting_objects,
    without_collections,
)
from tests.own_process import in_own_process


class Node:
    """Something that may refer to itself."""

    def __init__(self) -> None:
        self.neighbour: Node | None = None


@contextmanager
def looks() -> Iterator[list[int]]:
    """Note how many objects full collections look at."""
    looked_at: list[int] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looked_at.append(len(gc.get_objects()))

    gc.callbacks.append(collecting)
    try:
        yield looked_at
    finally:
        gc.callbacks.remove(collecting)


@in_own_process
def test_full_collections_look_at_what_is_new_when_very_much_is_kept() -> None:
    """Ten thousand logs are half a million objects: looked at together they hold the loop."""
    with freezing_survivors():
        doublings = (30 * MUCH_OBJECTS // gc.get_freeze_count()).bit_length()
        with looks() as looked_at:
            kept = [Node() for _ in range(30 * MUCH_OBJECTS)]
            gc.collect()
        assert gc.get_freeze_count() > 29 * MUCH_OBJECTS
    assert len(kept) == 30 * MUCH_OBJECTS
    assert len(looked_at) > 10, "each looks at a part"
    # But for those at which the process has doubled.
    assert sum(count >= 6 * MUCH_OBJECTS for count in looked_at) <= doublings + 1


@in_own_process
def test_collections_look_at_what_is_new_only_when_a_step_makes_objects_that_last() -> None:
    """The files of a table are as many objects as the rest of the controller's process: it has doubled."""
    with freezing_survivors():
        before = gc.get_freeze_count()
        with looks() as looked_at:
            with making_lasting_objects():
                kept = [Node() for _ in range(2 * before)]
            more = [Node() for _ in range(before)]
        assert len(kept) + len(more) == 3 * before
    assert looked_at
    assert max(looked_at) < before


@in_own_process
def test_collections_do_not_look_at_everything_when_what_was_frozen_has_gone() -> None:
    """Tables are compared again and again; the process is not larger for it."""
    with freezing_survivors():
        before = gc.get_freeze_count()
        with looks() as looked_at:
            for _ in range(20):
                kept = [Node() for _ in range(before // 2)]
                del kept
    assert looked_at
    assert max(looked_at) < before


@in_own_process
def test_collections_look_at_everything_when_the_process_has_doubled_beside_such_steps() -> None:
    """Objects that comparisons of tables made and dropped for days must not hide garbage of others."""
    with freezing_survivors():
        before = gc.get_freeze_count()
        for _ in range(10):
            with making_lasting_objects():
                made = [Node() for _ in range(before)]
            del made
        with looks() as looked_at:
            kept = [Node() for _ in range(2 * before)]
            gc.collect()
        assert len(kept) == 2 * before
    assert max(looked_at) > before


@in_own_process
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


@in_own_process
def test_collections_leave_what_another_thread_is_making_alone() -> None:
    """CPython ends `tuple(generator)` with a SystemError if anything else refers to the unfinished tuple."""
    sys.setswitchinterval(1e-6)
    refused: list[SystemError] = []

    def make_tuples() -> None:
        for _ in range(10_000):
            try:
                tuple(number for number in range(1_000))
            except SystemError as error:
                refused.append(error)

    maker = threading.Thread(target=make_tuples)
    with freezing_survivors():
        maker.start()
        while maker.is_alive():
            gc.collect()
    assert refused == []


@in_own_process
def test_collector_is_as_before_when_the_broker_has_ended() -> None:
    """Spark may give the process to another task."""
    before = gc.get_threshold(), list(gc.callbacks)
    with freezing_survivors():
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0


@in_own_process
def test_step_that_makes_much_that_lasts_is_looked_at_by_no_collection() -> None:
    """Collections took longer than the making of ten thousand logs."""
    collected: list[int] = []
    with freezing_survivors():
        gc.callbacks.append(lambda phase, info: collected.append(info["generation"]))
        before = gc.get_freeze_count()
        with without_collections() as step:
            kept = [Node() for _ in range(2 * MUCH_OBJECTS)]
            step.lasting_count = MANY_THINGS
        assert (collected, gc.isenabled()) == ([], True)
        assert gc.get_freeze_count() - before >= len(kept)
        del gc.callbacks[-1]


@in_own_process
def test_garbage_of_many_such_steps_is_found_once_the_process_has_doubled() -> None:
    """A cycle that is alive at the end of a step is frozen with the rest, and becomes garbage later."""
    with freezing_survivors():
        cycle = Node()
        cycle.neighbour = cycle
        gone = weakref.ref(cycle)
        with without_collections() as step:
            kept = [Node() for _ in range(MANY_THINGS)]
            step.lasting_count = len(kept)
        del cycle
        more = []
        while gone() is not None and len(more) < 100 * MUCH_OBJECTS:
            more += [Node() for _ in range(MUCH_OBJECTS)]
        assert gone() is None


@in_own_process
def test_step_that_makes_little_freezes_nothing_and_one_in_a_usual_process_changes_nothing() -> None:
    """Cycles among short-lived objects are found as before."""
    with without_collections():
        assert gc.isenabled()
    with freezing_survivors():
        before = gc.get_freeze_count()
        with without_collections() as step:
            assert not gc.isenabled()
            step.lasting_count = MANY_THINGS - 1
            with without_collections() as inner:
                inner.lasting_count = MANY_THINGS
        assert gc.isenabled()
        assert gc.get_freeze_count() == before
