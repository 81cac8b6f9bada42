"""The aborted transactions whose markers lie in a segment (`.txnindex`, KIP-98).

An entry is 34 bytes, big-endian: version 0 (int16), producer id, first offset of the transaction, offset
of its abort marker, last stable offset when it was aborted (int64 each). Last offsets rise. The file exists
only once there is something in it; entries are few, so a look-up reads them all.
"""

import os
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from sparklog.types import Offset, ProducerId

ENTRY: Final = Struct(">hqqqq")
ENTRY_BYTES: Final = 34
assert ENTRY.size == ENTRY_BYTES
_VERSION: Final = 0


class AbortedTransactionEntry(NamedTuple):
    """An aborted transaction and where it lies."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """The abort marker's (inclusive)."""
    last_stable_offset: Offset


class TransactionIndex:
    """The transaction index of one segment. Opens its file for each call: none of them is frequent."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[AbortedTransactionEntry]:
        """Return all entries in order; an incomplete last one (a crash) is left out.

        Raises:
            ValueError: an entry of an unknown version.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        entries = []
        for version, *fields in ENTRY.iter_unpack(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]):
            if version != _VERSION:
                raise ValueError(f"{self.path} has an entry of version {version}, not {_VERSION}")
            entries.append(AbortedTransactionEntry(*fields))
        return entries

    def append(self, entry: AbortedTransactionEntry) -> None:
        """Add an entry whose last offset is above all others'.

        Raises:
            OSError: it could not be written.
        """
        with self.path.open("ab", buffering=0) as file:
            file.write(ENTRY.pack(_VERSION, *entry))

    def truncate_to(self, offset: Offset) -> None:
        """Drop the transactions that ended at or after `offset`."""
        kept = 0
        entries = self.entries()
        while kept < len(entries) and entries[kept].last_offset < offset:
            kept += 1
        if self.path.exists():
            os.truncate(self.path, kept * ENTRY_BYTES)
