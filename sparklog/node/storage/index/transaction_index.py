"""The aborted transactions whose markers lie in a segment (`.txnindex`, KIP-98).

An entry is 34 bytes, big-endian: version 0 (int16), producer id, first offset of the transaction, offset of
its abort marker, last stable offset when it was aborted (int64 each). Last offsets rise, last stable offsets
do not fall. The file exists only if it has entries; `entry_count` is kept in memory, since most segments have
none.
"""

import os
from struct import Struct
from typing import Any, ClassVar, Final

from sparklog.node.storage.index.aborted_transaction import AbortedTransactionEntry
from sparklog.node.storage.index.index_file import IndexFile
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset

_VERSION: Final = 0
_READ_AT_ONCE: Final = 120
"""Entries read at a time: about a page of the file."""


class TransactionIndex(IndexFile):
    ENTRY: ClassVar[Struct] = Struct(">hqqqq")
    assert ENTRY.size == 34

    def load(self) -> None:
        """Count the file's entries; an incomplete last one (a crash) is left out.

        Raises:
            OSError: it cannot be examined.
        """
        try:
            size_bytes = self.path.stat().st_size
        except FileNotFoundError:
            size_bytes = 0
        self.adopt(size_bytes // self.ENTRY.size)

    def last_offset(self) -> Offset | None:
        """Return the offset of the last abort marker; None without one.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: the entry has an unknown version.
            OSError: the file cannot be read.
        """
        return self._entry(self._fields(self.entry_count - 1)).last_offset if self.entry_count else None

    def overlapping(
        self, offset: Offset, up_to_offset: Offset, *, cached_only: bool = False
    ) -> tuple[list[AbortedTransactionEntry], bool]:
        """Return the entries that overlap [offset, up_to_offset), and whether later segments can have none.

        Raises:
            NotCachedError, SegmentReleasedError, OSError: as `IndexFile` raises them.
            KafkaError: KAFKA_STORAGE_ERROR: an entry has an unknown version.
        """
        count = self.entry_count
        found: list[AbortedTransactionEntry] = []
        slot, _ = self._leading(lambda fields: fields[3] < offset, cached_only=cached_only)
        while slot < count:
            wanted = min(count - slot, _READ_AT_ONCE)
            window = self._read(self._opened(cached_only=cached_only), slot, wanted, cached_only=cached_only)
            for fields in self.ENTRY.iter_unpack(window):
                entry = self._entry(fields)
                if entry.last_offset >= offset and entry.first_offset < up_to_offset:
                    found.append(entry)
                if entry.last_stable_offset >= up_to_offset:
                    return found, True
            slot += wanted
        return found, False

    def append(self, entry: AbortedTransactionEntry) -> None:
        """Add an entry with the largest last offset.

        Raises:
            OSError: it could not be written.
        """
        file = self._opened()
        with self._lock:
            os.pwrite(file.fileno(), self.ENTRY.pack(_VERSION, *entry), self.entry_count * self.ENTRY.size)
            self.entry_count += 1

    def truncate_to(self, offset: Offset) -> None:
        """Drop the transactions that ended at or after `offset`.

        Raises:
            OSError: the file cannot be read or cut.
        """
        kept, _ = self._leading(lambda fields: fields[3] < offset, cached_only=False)
        if kept < self.entry_count:
            self.truncate_to_entries(kept)
            os.ftruncate(self._opened().fileno(), kept * self.ENTRY.size)

    def _forget_last(self) -> None:
        """Nothing is cached: `last_offset` is rarely read."""

    def _entry(self, fields: tuple[Any, ...]) -> AbortedTransactionEntry:
        version, *rest = fields
        if version != _VERSION:
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{self.path} has an entry of version {version}, not {_VERSION}",
            )
        return AbortedTransactionEntry(*rest)
