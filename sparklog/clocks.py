"""The two clocks, in whole milliseconds. Only shells read them; what decides is told the time."""

import time

from sparklog.types import TimestampMs


def monotonic_ms() -> int:
    """Return the time of a clock that only goes forward: for intervals, not for timestamps."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> TimestampMs:
    """Return the time since 1970, as records carry it: it may jump, in either direction."""
    return time.time_ns() // 1_000_000
