"""Whole seconds of a loop's clock, at which the periodic work of one process is done.

A processor that wakes up for one timer costs as much as some hundred lines of Python. So what is looked after
every second, whenever within it, is looked after by all parts in the same turn of the loop.
"""

import math


def whole_second_after(now_s: float) -> float:
    """Return the next whole second of the clock.

    >>> whole_second_after(7.0), whole_second_after(7.9)
    (8.0, 8.0)
    """
    return math.floor(now_s) + 1.0


def whole_interval_after(now_ms: int, interval_ms: int) -> int:
    """Return the next multiple of an interval, in milliseconds: of whole seconds, also a whole second.

    >>> whole_interval_after(7_000, 1_000), whole_interval_after(7_900, 5_000)
    (8000, 10000)
    """
    return now_ms - now_ms % interval_ms + interval_ms
