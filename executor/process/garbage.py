"""Garbage collection in a broker's process: no collection looks through all of the broker's logs.

A full collection of Python's looks at every object there is, and the loop stands still for that long: a few
hundred milliseconds at 10,000 partitions, again and again while they are opened. But what a broker holds of a
partition lasts, and goes with its last reference when the partition goes: it is in no cycle that only a
collection could find. So what is left after a full collection is frozen (`gc.freeze`) as soon as it is much:
a full collection then looks at what is new since the last one. What is little is left as it is, so that
cycles among what comes and goes, as connections do, are found.

It is for a process that is nothing but a broker: whatever else was in it would be frozen too.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["MUCH_OBJECTS", "freezing_survivors"]

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
    gc.callbacks.append(_freeze_what_is_left)
    try:
        yield
    finally:
        gc.callbacks.remove(_freeze_what_is_left)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _freeze_what_is_left(phase: str, info: dict[str, int]) -> None:
    if phase != "stop" or info["generation"] != _OLDEST_GENERATION:
        return
    if len(gc.get_objects(_OLDEST_GENERATION)) >= MUCH_OBJECTS:
        gc.freeze()
