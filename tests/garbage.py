"""What is left of things that have ended, and only a collection would find: they refer to themselves.

For tests in a process of their own: objects of a cluster that lives beside them would be counted, and CPython
refuses to finish a tuple of another thread while all objects are looked at.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def uncollected(*kinds: type[Any]) -> Iterator[Callable[[], list[Any]]]:
    """Have nothing collected while inside; yields what tells which of these kinds have come since."""
    gc.collect()
    gc.disable()
    known = [each for each in gc.get_objects() if isinstance(each, kinds)]
    of_old = {*map(id, known)}
    try:
        yield lambda: [
            each for each in gc.get_objects() if isinstance(each, kinds) and id(each) not in of_old
        ]
    finally:
        gc.enable()
