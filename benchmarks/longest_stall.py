"""The longest stalls of event loops, as processes that may have been killed since have logged them.

`sparklog/node/loop/machine/stalls.py` has the words of these lines.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple


class LongestStall(NamedTuple):
    """The longest stalls in the logs of some loops, in ms; 0 without a line."""

    own_ms: int
    """Caused by the loop's own callbacks, or by a disk."""
    foreign_ms: int
    """The process was stopped or starved, or busy in another thread."""

    def __str__(self) -> str:
        return f"{self.own_ms} ms by what it does or waits for, {self.foreign_ms} ms by not being run"


_LOGGED: Final = re.compile(r"the event loop stood still for (\d+) ms \([^)]*\): (\w+)")
_OWN: Final = ("computed", "waited")


def longest_stall(lines: Iterable[str]) -> LongestStall:
    """Return the longest stalls in lines of logs, of any processes.

    >>> longest_stall(["the event loop stood still for 301 ms (290 ms CPU, ...): computed in x"])
    LongestStall(own_ms=301, foreign_ms=0)
    """
    own_ms = foreign_ms = 0
    for line in lines:
        logged = _LOGGED.search(line)
        if logged is None:
            continue
        if logged.group(2) in _OWN:
            own_ms = max(own_ms, int(logged.group(1)))
        else:
            foreign_ms = max(foreign_ms, int(logged.group(1)))
    return LongestStall(own_ms, foreign_ms)
