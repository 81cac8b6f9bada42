"""The segments of a log on a simulated disk: where each begins, and which aborted transactions end in it."""

import os
from pathlib import Path
from typing import Final, NamedTuple

from sparklog.node.storage.file_region import LogFile
from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.index.transaction_index import TransactionIndex
from sparklog.node.storage.segments.segment_list import number_of
from sparklog.protocol.types import Offset

_SCRATCH: Final = LogFile(Path("simulated.txnindex"), os.memfd_create("simulated"))
"""What indexes write in vain: what is in them they keep."""


class MemoryTransactionIndex(TransactionIndex):
    """Production's index; only the file is missing."""

    def __init__(self, base_offset: Offset) -> None:
        super().__init__(_SCRATCH.path.parent, base_offset, _SCRATCH.path.suffix)
        self._file = _SCRATCH
        self._content = bytearray()

    def append(self, entry: AbortedTransactionEntry) -> None:
        self._content[self.size_bytes :] = self.ENTRY.pack(0, *entry)
        super().append(entry)

    def _read(self, file: LogFile | None, slot: int, count: int, *, cached_only: bool) -> bytes | bytearray:
        size = self.ENTRY.size
        return self._content[slot * size : (slot + count) * size].ljust(count * size, b"\0")


class MemorySegment(NamedTuple):
    """One segment."""

    base_offset: Offset
    transaction_index: MemoryTransactionIndex

    @classmethod
    def at(cls, base_offset: Offset) -> "MemorySegment":
        """Return a new one."""
        return cls(base_offset, MemoryTransactionIndex(base_offset))


class MemorySegments:
    """All of a log, the active one last; what production's look-ups ask."""

    def __init__(self, base_offset: Offset) -> None:
        self.all: list[MemorySegment] = [MemorySegment.at(base_offset)]

    @property
    def starts(self) -> list[Offset]:
        """Where they begin."""
        return [segment.base_offset for segment in self.all]

    def with_offset(self, offset: Offset) -> MemorySegment:
        """Return the one that an offset belongs into."""
        segments: list[object] = [*self.all]
        return self.all[number_of(segments, offset)]  # type: ignore[arg-type]

    def roll(self, base_offset: Offset) -> None:
        """Begin another one."""
        self.all.append(MemorySegment.at(base_offset))

    def cut(self, end_offset: Offset) -> None:
        """Have nothing from an offset on."""
        del self.all[1 + sum(segment.base_offset < end_offset for segment in self.all[1:]) :]
        self.all[-1].transaction_index.truncate_to(end_offset)

    def forget_indexes(self) -> None:
        """Recovery makes them anew."""
        self.all = [MemorySegment.at(segment.base_offset) for segment in self.all]

    def replace_start(self, end_offset: Offset, cleaned: list[MemorySegment]) -> None:
        """Have others up to where one begins."""
        self.all[: self.starts.index(end_offset)] = cleaned
