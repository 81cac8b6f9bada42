"""Which readers read one record after the other, so that reading ahead pays.

A read that begins where an earlier one of the partition has ended is sequential. Readers are not told apart:
two that alternate at one place count as well. Pure.
"""

from collections.abc import Hashable
from typing import Final

from sparklog.protocol.types import Offset

_REMEMBERED: Final = 4_096
"""How many ends of reads are remembered, the latest."""


class SequentialReads:
    def __init__(self) -> None:
        self._ends: dict[tuple[Hashable, Offset], None] = {}

    def read(self, partition: Hashable, start: Offset, end: Offset) -> bool:
        """Note the read of [start, end); return whether it went on from an earlier one."""
        is_sequential = (partition, start) in self._ends
        self._ends.pop((partition, end), None)
        self._ends[partition, end] = None
        if len(self._ends) > _REMEMBERED:
            del self._ends[next(iter(self._ends))]
        return is_sequential
