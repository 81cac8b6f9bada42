"""Garbage collection in the process of a broker or the controller: no collection scans all of its state.

A full collection of Python scans every object, and the event loop stands still for it: a few hundred
milliseconds at 10,000 partitions, or at tables of 100,000 files, again and again while they are opened. But
the objects of a partition last, and go with their last reference when the partition goes; they are in no
cycle that only a collection could find. So the survivors of a full collection are frozen (`gc.freeze`) once
they are many: the next one scans new objects only. A few survivors are not frozen, so that cycles among
short-lived objects are found.

Short-lived objects may be many, too: requests that wait for thousands of partitions, thousands of
connections. Those alive at a full collection are frozen with the rest, and leak if they become a cycle later.
So once twice as many objects are frozen as were known to last, everything is scanned again: the process has
doubled, or holds as much garbage. Python itself scans after growth by a quarter. A step that makes very many
objects says that these last (`making_lasting_objects`), and no scan of everything follows it. A short step of
a loop is spared the collections themselves (`without_collections`): they would look three times at objects of
which none is garbage, for longer than it takes to make them.

It is for a process that runs nothing else: all other objects would be frozen too.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

MANY_THINGS: Final = 50
"""A step that makes so many partitions, replicas or records makes thousands of objects."""
MUCH_OBJECTS: Final = 10_000
"""A full collection of so many objects takes some milliseconds."""

_OLDEST_GENERATION: Final = 2
_MIDDLE_COLLECTIONS_BETWEEN: Final = 1
"""Middle collections before a full one, so that it finds some 15,000 new objects; Python's default means
77,000.
"""


@contextmanager
def freezing_survivors() -> Iterator[None]:
    """Freeze all objects, and the survivors of full collections, until the end of the `with` block."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    # An empty collection: Python runs a full one after growth by a quarter of the last one's survivors.
    gc.collect()
    gc.set_threshold(*thresholds[:_OLDEST_GENERATION], _MIDDLE_COLLECTIONS_BETWEEN)
    freezing = _Freezing(gc.get_freeze_count())
    gc.callbacks.append(freezing)
    _in_use.append(freezing)
    try:
        yield
    finally:
        _in_use.remove(freezing)
        gc.callbacks.remove(freezing)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@contextmanager
def making_lasting_objects() -> Iterator[None]:
    """Let what is frozen meanwhile be known to last, without a scan of everything for it.

    For a thread that makes very many objects which are in no cycle, and go with their last reference. It must
    wait for nothing: cycles of other threads among these objects are found only by a later scan.
    """
    with _making.lock:
        _making.threads += 1
    try:
        yield
    finally:
        with _making.lock:
            _making.threads -= 1


@dataclass(slots=True)
class Step:
    """A step without collections."""

    lasting_count: int = 0
    """So many things were made that last, each of which is some objects. Set by the step."""


@contextmanager
def without_collections() -> Iterator[Step]:
    """Collect no garbage until the end of the `with` block, a short step that waits for nothing.

    If it has made very many objects that last, all that is alive is frozen at its end, without a look at it,
    and counts as the survivors of a full collection do. Without `freezing_survivors`, and inside another such
    step, nothing is different.
    """
    step = Step()
    if not (_in_use and gc.isenabled()):
        yield step
        return
    gc.disable()
    try:
        yield step
    finally:
        if step.lasting_count >= MANY_THINGS:
            _in_use[-1].freeze_all()
        gc.enable()


class _Making:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
        """So many make lasting objects now."""


_making: Final = _Making()
_in_use: "Final[list[_Freezing]]" = []
"""The callback of `freezing_survivors`, while there is one."""


def _count_oldest() -> int:
    return _count(_OLDEST_GENERATION)


def _count(generation: int | None) -> int:
    # Within one call of C: between two calls of Python another thread may run, and CPython refuses to finish
    # a tuple of that thread (SystemError) to which this list refers.
    return next(map(len, map(gc.get_objects, (generation,))))


class _Freezing:
    """A callback of the collector, on the collecting thread.

    It runs before the collector has begun or after it has ended, so it may move objects between the
    collector's lists. It only counts them: no frame or half-made object is looked into.
    """

    def __init__(self, lasting_count: int) -> None:
        self._lasting_count = lasting_count
        """The objects that survived the last scan of everything, or are known to last."""
        self._since_count = 0
        """The objects frozen since, of which some may have gone."""
        self._has_made_lasting = False
        """Whether objects were frozen since that are known to last, and are not among these."""
        self._looks_at_everything = False

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _OLDEST_GENERATION:
            return
        if phase == "start":
            self._looks_at_everything = _making.threads == 0 and self._has_doubled()
            if self._looks_at_everything:
                gc.unfreeze()
            return
        left_count = _count_oldest()
        if self._looks_at_everything:
            self._lasting_count, self._since_count = max(left_count, MUCH_OBJECTS), 0
        elif left_count < MUCH_OBJECTS:
            return
        elif _making.threads:
            self._has_made_lasting = True
        else:
            self._since_count += left_count
        gc.freeze()

    def freeze_all(self) -> None:
        """Freeze all objects, unless many were since the last scan of everything.

        Then a full collection has to count them: without one that scan would never come.
        """
        if self._since_count < self._lasting_count:
            self._since_count += _count(None)
            gc.freeze()

    def _has_doubled(self) -> bool:
        if self._has_made_lasting:
            # Those of former steps may have gone: what is left is counted, not what was made.
            self._has_made_lasting = False
            self._lasting_count = max(gc.get_freeze_count() - self._since_count, MUCH_OBJECTS)
        if self._since_count < self._lasting_count:
            return False
        self._since_count = max(0, gc.get_freeze_count() - self._lasting_count)
        return self._since_count >= self._lasting_count
