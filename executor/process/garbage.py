"""Garbage collection in a broker's process: no collection looks through all of the broker's logs.

A full collection of Python's looks at every object there is, and the loop stands still for that long: a few
hundred milliseconds at 10,000 partitions, again and again while they are opened. But what a broker holds of a
partition lasts, and goes with its last reference when the partition goes: it is in no cycle that only a
collection could find. So what is left after a full collection is frozen (`gc.freeze`) as soon as it is much:
a full collection then looks at what is new since the last one. What is little is left as it is, so that
cycles among what comes and goes are found.

Much may come and go, too: requests that wait for thousands of partitions, thousands of connections. What is
there of it at a full collection is frozen with the rest, and stays for ever if it becomes a cycle later. So
once as much has been frozen as was known to last, everything is looked at again: that is when the process has
doubled, or holds as much that nobody needs. Python itself looks when a quarter has come.

It is for a process that is nothing but a broker: whatever else was in it would be frozen too.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MUCH_OBJECTS: Final = 10_000
"""So many objects take a full collection some milliseconds."""

_OLDEST_GENERATION: Final = 2
_MIDDLE_COLLECTIONS_BETWEEN: Final = 1
"""Before a full collection, so that this finds some 15,000 new objects; Python's own figure means 77,000."""


@contextmanager
def freezing_survivors() -> Iterator[None]:
    """Freeze what there is, and what full collections leave, until the end of the `with` block."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    # Of nothing: a full collection waits for a quarter more than the last one has left.
    gc.collect()
    gc.set_threshold(*thresholds[:_OLDEST_GENERATION], _MIDDLE_COLLECTIONS_BETWEEN)
    freezing = _Freezing(gc.get_freeze_count())
    gc.callbacks.append(freezing)
    try:
        yield
    finally:
        gc.callbacks.remove(freezing)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


class _Freezing:
    """A callback of the collector's, on whichever thread collects.

    It runs before the collector has begun or after it has ended, so the collector has no hold of the lists
    that it moves objects between. It only counts the objects: no frame or half-made object is looked into.
    """

    def __init__(self, lasting_count: int) -> None:
        self._lasting_count = lasting_count
        """How many objects have outlived a look at everything,"""
        self._since_count = 0
        """and how many were frozen since."""

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """A collection is about to begin, or has just ended."""
        if info["generation"] != _OLDEST_GENERATION:
            return
        looks_at_everything = self._since_count >= self._lasting_count
        if phase == "start":
            if looks_at_everything:
                gc.unfreeze()
            return
        left_count = len(gc.get_objects(_OLDEST_GENERATION))
        if looks_at_everything:
            self._lasting_count, self._since_count = max(left_count, MUCH_OBJECTS), 0
        elif left_count >= MUCH_OBJECTS:
            self._since_count += left_count
        else:
            return
        gc.freeze()
