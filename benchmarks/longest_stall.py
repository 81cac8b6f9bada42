"""The longest stall of event loops, as processes that may have been killed since have logged it."""

import re
from collections.abc import Iterable
from typing import Final

_LOGGED: Final = re.compile(r"the event loop stood still for (\d+) ms in ")


def longest_stall_ms(lines: Iterable[str]) -> int:
    """Return the longest stall in lines of logs, of any processes; 0 if none was logged.

    >>> longest_stall_ms(["the event loop stood still for 301 ms in f (x.py:3)"])
    301
    """
    return max((int(logged[1]) for line in lines if (logged := _LOGGED.search(line))), default=0)
