"""Which readers read one record after the other, so that reading ahead pays.

A read that begins where an earlier one of the partition has ended goes on from it. Two readers that alternate
at one place count as one. Pure.
"""

from collections.abc import Hashable
from typing import Final

from sparklog.protocol.types import Offset

_REMEMBERED: Final = 4_096
"""How many ends of reads are remembered, the latest."""


class SequentialReads:
    def __init__(self) -> None:
        self._ends: dict[tuple[Hashable, Offset], int] = {}
        """Ends of reads, and how many reads led there without a jump."""

    def read(self, partition: Hashable, start: Offset, end: Offset) -> int:
        """Note the read of [start, end); return how many earlier ones it goes on from."""
        run = self._ends.get((partition, start), 0)
        self._ends.pop((partition, end), None)
        self._ends[partition, end] = run + 1
        if len(self._ends) > _REMEMBERED:
            del self._ends[next(iter(self._ends))]
        return run
