"""Bound on the file descriptors of connections, so that some are left for the process's files.

Every connection takes one, and silent clients could take all. A log without a descriptor cannot begin its
next segment, and no snapshot can be written. So connections have half of the descriptors that everything else
in the process leaves: new ones are refused beyond it, and when the number of files grows, idle ones are
closed. A listener that is reserved for the cluster itself takes new ones up to three quarters, and closes
none.

Order for the caller, all on one event loop: `measure` before the first connection is taken and every second
or so; `has_room` before each, `opened` when it is taken and `closed` once when it ends.
"""

import logging
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

logger = logging.getLogger(__name__)


class DescriptorBudget:
    """The descriptors that the connections of one process may take."""

    def __init__(self, limit: int, in_use: Callable[[], int]) -> None:
        self.limit = limit
        """RLIMIT_NOFILE."""
        self._in_use = in_use
        self._connection_count = 0
        self._left = limit
        """Descriptors that everything but connections leaves."""

    @classmethod
    def of_process(cls) -> Self:
        """Return the budget of this process, after raising its soft limit as far as possible."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (OSError, ValueError) as error:
                logger.info("RLIMIT_NOFILE stays %d and is not raised to %d: %s", soft, hard, error)
        return cls(sys.maxsize if soft == resource.RLIM_INFINITY else soft, open_descriptors)

    def measure(self) -> None:
        """Measure how many descriptors are in use."""
        self._left = max(0, self.limit - (self._in_use() - self._connection_count))

    def has_room(self, *, reserved: bool) -> bool:
        return self._connection_count < (self._left * 3 // 4 if reserved else self._left // 2)

    @property
    def excess(self) -> int:
        """Connections that must end to leave enough descriptors for files."""
        return max(0, self._connection_count - self._left // 2)

    def opened(self) -> None:
        self._connection_count += 1

    def closed(self) -> None:
        self._connection_count -= 1


def open_descriptors() -> int:
    try:
        # Since 6.2 Linux knows the number; counting takes 10 ms where there are 30,000.
        count = os.stat("/proc/self/fd").st_size  # noqa: PTH116 - every second, and a path costs a multiple
    except FileNotFoundError:
        count = 0
    return count or sum(1 for _ in Path("/dev/fd").iterdir())
