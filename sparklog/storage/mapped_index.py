"""What the offset index and the time index have in common: fixed-size entries in a file, read by mapping it.

The active segment's index file is preallocated to segment.index.bytes (sparse) and trimmed to its entries
when the segment is rolled or closed. Rules kept:

- Entries are written with `pwrite`, never through the mapping: a full disk is then an `OSError` and not a
  SIGBUS that kills the process.
- Bytes beyond the entries are zero, so that after a crash the entries can be told from the rest.
- A look-up holds the index's lock, so a trim or truncation in another thread cannot pull the mapping away
  from under it. Look-ups take microseconds.
"""

import mmap
import os
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import ClassVar, Final

from sparklog.types import Offset

_CHUNK_BYTES: Final = 12 * 1024
"""Whole entries of either index."""


def read_used(path: Path) -> bytes:
    """Return the beginning of an index file, up to the zeros of one that was not trimmed; empty for none.

    Raises:
        OSError: it cannot be read.
    """
    chunks: list[bytes] = []
    try:
        with path.open("rb", buffering=0) as file:
            while (chunk := file.read(_CHUNK_BYTES)) and any(chunk):
                chunks.append(chunk)
    except FileNotFoundError:
        return b""
    return b"".join(chunks)


class MappedIndex:
    """An index file of one segment."""

    ENTRY: ClassVar[Struct]

    def __init__(self, path: Path, base_offset: Offset, entry_count: int, capacity_bytes: int) -> None:
        """Use `open` or `create` instead."""
        self.path = path
        self.base_offset = base_offset
        self.entry_count = entry_count
        self.max_entries = capacity_bytes // self.ENTRY.size
        self._descriptor: int | None = None
        self._map: mmap.mmap | None = None
        self._lock = Lock()

    def make_writable(self, capacity_bytes: int) -> None:
        """Open for appending, preallocated to `capacity_bytes` (rounded down to whole entries).

        Raises:
            OSError: the file cannot be opened or extended.
        """
        with self._lock:
            size = self.ENTRY.size
            self.max_entries = max(capacity_bytes // size, self.entry_count)
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._map = None
            # Cutting to the entries first leaves zeros behind them.
            os.ftruncate(self._descriptor, self.entry_count * size)
            os.ftruncate(self._descriptor, self.max_entries * size)

    def adopt(self, entry_count: int) -> None:
        """Take the first `entry_count` entries of the file, which somebody else wrote, for this index's."""
        with self._lock:
            self._map = None
            self._forget_last()
            self.entry_count = entry_count

    def trim(self) -> None:
        """Cut the file to its entries and keep it for look-ups only.

        Raises:
            OSError: the file cannot be cut.
        """
        with self._lock:
            if self._descriptor is not None:
                self._map = None
                os.ftruncate(self._descriptor, self.entry_count * self.ENTRY.size)
                os.close(self._descriptor)
                self._descriptor = None

    def release(self) -> None:
        """Close the file as it is."""
        with self._lock:
            self._map = None
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write_entry(self, entry: bytes) -> None:
        if self._descriptor is None:
            raise AssertionError(f"{self.path} is not open for appending")
        os.pwrite(self._descriptor, entry, self.entry_count * self.ENTRY.size)
        self.entry_count += 1

    def truncate_to_entries(self, entry_count: int) -> None:
        """Drop all but the first `entry_count` entries.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            self._truncate_to_entries(entry_count)

    def _truncate_to_entries(self, entry_count: int) -> None:
        """Drop entries; the caller holds the lock."""
        size = self.ENTRY.size
        removed_bytes = (self.entry_count - entry_count) * size
        if removed_bytes > 0:
            self._forget_last()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, bytes(removed_bytes), entry_count * size)
            finally:
                os.close(descriptor)
            self.entry_count = entry_count

    def _replace_entries(self, content: bytes) -> None:
        """Have the entries in `content`, as many as there is room for, and no others."""
        with self._lock:
            self._forget_last()
            self._map = None
            if self._descriptor is not None:
                content = content[: self.max_entries * self.ENTRY.size]
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                size_bytes = os.fstat(descriptor).st_size
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, size_bytes if self._descriptor is not None else len(content))
            finally:
                os.close(descriptor)
            self.entry_count = len(content) // self.ENTRY.size

    def _forget_last(self) -> None:
        """Have `last_entry` read again."""
        raise NotImplementedError

    def _mapping(self) -> mmap.mmap:
        """Return the mapped file, which has at least one entry; the caller holds the lock."""
        mapped = self._map
        if mapped is None or len(mapped) < self.entry_count * self.ENTRY.size:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapped = self._map = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
        return mapped

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.release()
