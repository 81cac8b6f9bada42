"""The two clocks, in whole units. Only shells read them; machines take the time as an argument."""

import time

from sparklog.protocol.types import TimestampMs


def monotonic_ms() -> int:
    """Return the time of a monotonic clock: for intervals, not for timestamps."""
    return time.monotonic_ns() // 1_000_000


def monotonic_us() -> int:
    """Return the time of the same clock in microseconds."""
    return time.monotonic_ns() // 1_000


def wall_clock_ms() -> TimestampMs:
    """Return the time since 1970, as in records' timestamps; it may jump in either direction."""
    return time.time_ns() // 1_000_000
