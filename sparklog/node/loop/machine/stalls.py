"""Stalls of an event loop: their causes, and which of them are logged. Pure.

Not every stall is a callback's fault. `Stall` distinguishes them by the state of the loop's thread most of
the time: running, or ready without a processor (the kernel counts both), or neither; and then by whether the
watching thread could run meanwhile, which it cannot while the process is stopped.

`StallLog` takes the longest stall of each second. A line is due when the longest so far is markedly exceeded,
and for any above `WARN_ABOVE_MS` when none was due for `LINE_INTERVAL_MS`.
"""

import logging
from enum import Enum
from typing import Final, NamedTuple

WARN_ABOVE_MS: Final = 250
LINE_INTERVAL_MS: Final = 10_000
TELL_ABOVE_MS: Final = 50
TELL_AGAIN_FACTOR: Final = 1.25


class Cause(Enum):
    COMPUTED = "computed"
    WAITED = "waited (for a disk, or for a lock)"
    STARVED = "starved: the machine had no processor for it"
    NOT_RUN = "not run: the process was stopped, or another thread kept the interpreter"


class Stall(NamedTuple):
    """One long turn of a loop."""

    ms: int
    loop_cpu_ms: int
    """Processor time of the loop's thread in it, at most."""
    unscheduled_ms: int
    """Time in which the loop's thread was ready without a processor, at most."""
    watch_gap_ms: int
    """The longest time in it for which the watching thread did not run either."""
    doing: str | None
    """The stalled code; None if the loop's thread gave no stack."""

    @property
    def cause(self) -> Cause:
        """Return the state of the loop's thread most of the time, or its obstacle.

        >>> Stall(2_000, 3, 40, 1_990, None).cause.name
        'NOT_RUN'
        """
        rest_ms = self.ms - self.loop_cpu_ms - self.unscheduled_ms
        if self.loop_cpu_ms >= max(self.unscheduled_ms, rest_ms):
            return Cause.COMPUTED
        if self.unscheduled_ms >= rest_ms:
            return Cause.STARVED
        return Cause.WAITED if 2 * self.watch_gap_ms < self.ms else Cause.NOT_RUN

    def __str__(self) -> str:
        where = f" in {self.doing}" if self.doing is not None else ""
        shares = f"{self.loop_cpu_ms} ms CPU, {self.unscheduled_ms} ms without a processor"
        return f"{self.ms} ms ({shares}): {self.cause.value}{where}"


class StallLog:
    """Which stalls of one loop are logged. Pure."""

    def __init__(self) -> None:
        self._longest_logged_ms: dict[Cause, int] = {}
        self._logged_at_ms: int | None = None

    def take(self, stall: Stall, now_ms: int) -> int | None:
        """Take in the longest stall of a second; return the level of a line about it, None for no line."""
        longest_ms = self._longest_logged_ms.get(stall.cause, 0)
        is_longest = stall.ms >= max(TELL_ABOVE_MS, TELL_AGAIN_FACTOR * longest_ms)
        is_long = stall.ms > WARN_ABOVE_MS
        is_due = self._logged_at_ms is None or now_ms - self._logged_at_ms >= LINE_INTERVAL_MS
        if not is_longest and not (is_long and is_due):
            return None
        self._longest_logged_ms[stall.cause] = max(longest_ms, stall.ms)
        self._logged_at_ms = now_ms
        return logging.WARNING if is_long else logging.INFO
