"""What is told of the stalls of an event loop: why it stood still, and which stalls deserve a line. Pure.

Not every stall is a callback's fault. `Stall` tells them apart by what the loop's thread did most of the
time: it ran, or it was ready and had no processor (the kernel counts both), or neither; and then by whether
the watching thread could run meanwhile, which it cannot while the process is stopped.

`StallLog` has a warning for each second whose longest stall is above `WARN_ABOVE_MS`, but not more often than
every `WARNING_INTERVAL_MS`; and a line each time the longest so far is markedly exceeded, which
`longest_stall` finds again in the logs of processes that may have been killed since.
"""

import logging
import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["Cause", "LongestStall", "Stall", "StallLog", "longest_stall"]

WARN_ABOVE_MS: Final = 250
WARNING_INTERVAL_MS: Final = 10_000
TELL_ABOVE_MS: Final = 50
"""A longest stall below it is nobody's concern."""
TELL_AGAIN_FACTOR: Final = 1.25


class Cause(Enum):
    """Why a loop stood still."""

    COMPUTED = "computed"
    WAITED = "waited (for a disk, or for a lock)"
    STARVED = "starved: the machine had no processor for it"
    INTERPRETER = "kept from the interpreter by another thread"
    STOPPED = "stopped: the whole process did not run"


class Stall(NamedTuple):
    """One turn of a loop that took long."""

    ms: int
    loop_cpu_ms: int
    """Processor time of the loop's thread in it, at most."""
    unscheduled_ms: int
    """How long the loop's thread was ready to run meanwhile and had no processor, at most."""
    process_cpu_ms: int
    watch_gap_ms: int
    """The longest time in it for which the watching thread did not run either."""
    collecting_ms: int
    """How much of it was garbage collection."""
    doing: str | None
    """What was seen to run; None if nothing was."""

    @property
    def cause(self) -> Cause:
        """What the loop's thread did most of the time, or what kept it.

        >>> Stall(2_000, 3, 40, 5, 1_990, 0, None).cause
        <Cause.STOPPED: 'stopped: the whole process did not run'>
        """
        rest_ms = self.ms - self.loop_cpu_ms - self.unscheduled_ms
        if self.loop_cpu_ms >= max(self.unscheduled_ms, rest_ms):
            return Cause.COMPUTED
        if self.unscheduled_ms >= rest_ms:
            return Cause.STARVED
        if 2 * self.watch_gap_ms < self.ms:
            return Cause.WAITED
        return Cause.INTERPRETER if 2 * self.process_cpu_ms >= self.ms else Cause.STOPPED

    def __str__(self) -> str:
        collecting = f", {self.collecting_ms} ms of garbage collection" if self.collecting_ms else ""
        where = f" in {self.doing}" if self.doing is not None else ""
        shares = f"{self.loop_cpu_ms} ms CPU, {self.unscheduled_ms} ms without a processor{collecting}"
        return f"{self.ms} ms ({shares}): {self.cause.value}{where}"


class StallLog:
    """What is told of the stalls of one loop. Pure."""

    def __init__(self) -> None:
        self.longest: dict[Cause, Stall] = {}
        """The longest there was, by cause."""
        self._told_ms: dict[Cause, int] = {}
        self._warned_ms: int | None = None
        self._unwarned = 0

    def take(self, stall: Stall, now_ms: int) -> list[tuple[int, str]]:
        """Take in the longest stall of a second; return the lines to log, each with its level."""
        lines: list[tuple[int, str]] = []
        longest = self.longest.get(stall.cause)
        if longest is None or stall.ms > longest.ms:
            self.longest[stall.cause] = stall
        if stall.ms > WARN_ABOVE_MS:
            if self._warned_ms is None or now_ms - self._warned_ms >= WARNING_INTERVAL_MS:
                others = f" ({self._unwarned} more since the last such line)" if self._unwarned else ""
                lines.append((logging.WARNING, f"the event loop stood still for {stall}{others}"))
                self._warned_ms, self._unwarned = now_ms, 0
            else:
                self._unwarned += 1
        if stall.ms >= max(TELL_ABOVE_MS, TELL_AGAIN_FACTOR * self._told_ms.get(stall.cause, 0)):
            self._told_ms[stall.cause] = stall.ms
            lines.append((logging.INFO, _told(stall)))
        return lines

    def last_lines(self) -> list[str]:
        """Return what is told when the loop ends: the longest stall of each cause, or just the longest."""
        stalls = sorted(self.longest.values(), reverse=True)
        return [_told(stall) for stall in stalls if stall.ms >= TELL_ABOVE_MS or stall is stalls[0]]


def _told(stall: Stall) -> str:
    return f"longest stall of the event loop so far: {stall}"


class LongestStall(NamedTuple):
    """What logs say of the longest stalls of the loops that wrote them; 0 where they say nothing."""

    own_ms: int
    """The loop's own doing, or a disk's."""
    foreign_ms: int
    """The process was stopped or starved, or busy in another thread."""

    def __str__(self) -> str:
        return f"{self.own_ms} ms by what it does or waits for, {self.foreign_ms} ms by not being run"


_TOLD: Final = re.compile(r"longest stall of the event loop so far: (\d+) ms \([^)]*\): (\w+)")
_OWN: Final = ("computed", "waited")


def longest_stall(lines: Iterable[str]) -> LongestStall:
    """Find the longest stalls in lines of logs, of whatever processes.

    >>> longest_stall(["longest stall of the event loop so far: 301 ms (290 ms CPU, ...): computed in x"])
    LongestStall(own_ms=301, foreign_ms=0)
    """
    own_ms = foreign_ms = 0
    for line in lines:
        told = _TOLD.search(line)
        if told is None:
            continue
        if told.group(2) in _OWN:
            own_ms = max(own_ms, int(told.group(1)))
        else:
            foreign_ms = max(foreign_ms, int(told.group(1)))
    return LongestStall(own_ms, foreign_ms)
