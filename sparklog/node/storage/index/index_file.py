"""Common part of a segment's indexes: fixed-size entries in a file, in rising order, read with `pread`.

The active segment's offset and time index are preallocated to segment.index.bytes (sparse) and trimmed to
their entries when the segment is rolled or closed. Rules kept:

- New entries are held in memory until `write` (or `sync`, `trim`, `make_writable`), and look-ups find them
  there. A crash loses them: recovery completes the index of an active segment from its log.
- A file that is appended to is opened, or created, when its first entries are written: of thousands of
  partitions most have none, and would take two descriptors and two files each.
- Nothing is mapped: a failing or full disk then raises `OSError` instead of a SIGBUS that kills the process,
  and a page's presence in memory can be queried before it is touched.
- Bytes beyond the entries are zero, so that the entries can be recognised after a crash.
- A look-up beside a change in another thread may find any entry or none: the caller checks the result against
  the log. It never reads a closed file or another segment's: the file stays open while a look-up uses it, and
  is opened by its path only while its segment is in the log (`SegmentReleasedError`).
- Changes of entries hold the lock; look-ups do not, so that a change that waits for the disk does not block
  them.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Any, ClassVar, Final

from sparklog.node.storage.file_region import LogFile, NotCachedError
from sparklog.node.storage.files import offset_name, sync_descriptor
from sparklog.protocol.types import Offset

_CHUNK_BYTES: Final = 12 * 1024
"""A multiple of the entry sizes of the offset and time index."""
_WINDOW_BYTES: Final = 4096
"""Range of a file that is read at once when the search has narrowed to it."""


class SegmentReleasedError(Exception):
    """The segment has left its log: repeat the look-up with the current segments."""


def read_used(path: Path) -> bytes:
    """Return an index file up to the zeros of an untrimmed one; empty if it does not exist.

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


class IndexFile:
    ENTRY: ClassVar[Struct]

    def __init__(self, directory: Path, base_offset: Offset, suffix: str) -> None:
        self.name = offset_name(base_offset, suffix)
        """The file's name in its directory."""
        self.base_offset = base_offset
        self.entry_count = 0
        self.max_entries = 0
        """Capacity while preallocated."""
        self.removals = 0
        """Number of calls that dropped or replaced entries."""
        self._file: LogFile | None = None
        self._unwritten: tuple[int, bytearray] = (0, bytearray())
        """The slot of the first entry that is not in the file, and these entries, if there are any.

        The tuple is replaced as a whole, for look-ups beside a change; entries are only added in place.
        """
        self._is_writable = False
        """Whether entries are added: the file is preallocated as soon as it is open."""
        self._released = False
        self._lock = Lock()
        self._directory = directory

    @property
    def path(self) -> Path:
        # Made when it is needed: most indexes of thousands of partitions have no file.
        return self._directory / self.name

    @path.setter
    def path(self, path: Path) -> None:
        self._directory, self.name = path.parent, path.name

    @property
    def size_bytes(self) -> int:
        return self.entry_count * self.ENTRY.size

    @property
    def unwritten_bytes(self) -> int:
        """The size of the entries that are only in memory."""
        return len(self._unwritten[1])

    def make_writable(self, capacity_bytes: int) -> None:
        """Begin to append, with room for `capacity_bytes` (rounded down to whole entries).

        Raises:
            OSError: the file is open and cannot be written or extended.
        """
        with self._lock:
            self.max_entries = max(capacity_bytes // self.ENTRY.size, self.entry_count)
            if self._file is not None:
                self._write(self._file.fileno())
                self._preallocate(self._file.fileno())
            self._is_writable = True

    def adopt(self, entry_count: int) -> None:
        """Take the first `entry_count` entries of the file, written elsewhere, as this index's."""
        with self._lock:
            self._forget_last()
            self._unwritten = (entry_count, bytearray())
            self.entry_count = entry_count

    def write(self) -> None:
        """Write the entries that are only in memory.

        Raises:
            OSError: they could not be written, and stay in memory.
        """
        with self._lock:
            if self._unwritten[1] and not self._released:
                self._write(self._open().fileno())

    def trim(self, *, is_needed: bool) -> None:
        """Write all entries and cut the file to them, before `end_appending`.

        With `is_needed` there is a file afterwards, even without entries: a segment with records has one, and
        so has a cleaned segment, whose files Kafka renames all.

        Raises:
            OSError: the file cannot be opened, written or cut; more entries may be added.
        """
        with self._lock:
            if not self._is_writable or self._released:
                return
            # A file that was not opened has its entries and no more.
            if self._file is not None or self._unwritten[1] or (is_needed and not self.path.exists()):
                file = self._open()
                self._write(file.fileno())
                os.ftruncate(file.fileno(), self.entry_count * self.ENTRY.size)

    def end_appending(self) -> None:
        """Close the trimmed file until the next look-up; no entries are added."""
        with self._lock:
            self._is_writable = False
            self._file = None

    def close(self) -> None:
        """Close the descriptor until the next look-up, unless entries are added."""
        with self._lock:
            if not self._is_writable:
                self._file = None

    def release(self) -> None:
        """Close the file for good, without changing it: its segment has left the log."""
        with self._lock:
            self._released = True
            self._file = None

    def rename(self, path: Path) -> None:
        """Rename the file, if there is one; a concurrent open finds it.

        Raises:
            OSError: it cannot be renamed.
        """
        with self._lock:
            if path != self.path:
                with suppress(FileNotFoundError):
                    self.path.rename(path)
                self.path = path

    def sync(self) -> None:
        """Write and fsync all entries, unless the file was removed with its segment or does not exist yet.

        Raises:
            OSError: it cannot be opened, written or synced.
        """
        with self._lock:
            if self._released:
                return
            file = self._open() if self._unwritten[1] else self._file
            if file is not None:
                self._write(file.fileno())
        if file is None:
            try:
                file = LogFile.open(self.path)
            except FileNotFoundError:
                return
        sync_descriptor(file.fileno())

    def _add_entry(self, entry: bytes) -> None:
        if not self._is_writable:
            raise AssertionError(f"{self.path} is not open for appending")
        with self._lock:
            if self._unwritten[1]:
                self._unwritten[1].extend(entry)
            else:
                self._unwritten = (self.entry_count, bytearray(entry))
            self.entry_count += 1

    def _write(self, descriptor: int) -> None:
        """Write the entries that are only in memory; for a holder of the lock."""
        first, entries = self._unwritten
        position, size_bytes = first * self.ENTRY.size, len(entries)
        written = 0
        while written < size_bytes:
            count = os.pwrite(descriptor, entries[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, f"no more bytes at {position + written}", str(self.path))
            written += count
        if written:
            self._unwritten = (self.entry_count, bytearray())

    def truncate_to_entries(self, entry_count: int) -> None:
        """Drop all but the first `entry_count` entries.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            self.removals += 1
            if self.entry_count <= entry_count:
                return
            size = self.ENTRY.size
            first, entries = self._unwritten
            written_count = first if entries else self.entry_count
            # Entries in memory are dropped also where there is no descriptor for a file.
            file = self._open_unless_released() if written_count > entry_count else None
            self._forget_last()
            self._unwritten = (first, entries[: max(0, entry_count - first) * size])
            self.entry_count = entry_count
            if file is not None:
                os.pwrite(file.fileno(), bytes((written_count - entry_count) * size), entry_count * size)

    def _replace_entries(self, content: bytes, removals: int, entry_count: int) -> bool:
        """Replace all entries by those in `content`, as many as there is room for.

        Returns False, without a change, if the index has changed since it had `removals` and `entry_count`,
        or was closed meanwhile.
        """
        file = self._opened()
        with self._lock:
            if self._file is not file or (self.removals, self.entry_count) != (removals, entry_count):
                return False
            descriptor = file.fileno()
            self.removals += 1
            self._forget_last()
            self._unwritten = (0, bytearray())
            if self._is_writable:
                content = content[: self.max_entries * self.ENTRY.size]
            size_bytes = self.max_entries * self.ENTRY.size if self._is_writable else len(content)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, size_bytes)
            self.entry_count = len(content) // self.ENTRY.size
            return True

    def _forget_last(self) -> None:
        """Invalidate the cached `last_entry`."""
        raise NotImplementedError

    def _leading(
        self, holds: Callable[[tuple[Any, ...]], bool], *, cached_only: bool
    ) -> tuple[int, tuple[Any, ...] | None]:
        """Return the number of leading entries for which `holds` is true, and the last of them.

        It holds for none of those behind.

        Raises:
            NotCachedError: only with `cached_only`.
            SegmentReleasedError: the segment has left the log.
            OSError: the file cannot be read.
        """
        low, high = 0, self.entry_count
        if not high:
            return 0, None
        size = self.ENTRY.size
        unpack_from = self.ENTRY.unpack_from
        file = self._searched(cached_only=cached_only)
        last: tuple[Any, ...] | None = None
        window: bytes | bytearray = b""
        window_start = 0
        while low < high:
            middle = (low + high) // 2
            if window:
                entry = unpack_from(window, (middle - window_start) * size)
            elif (high - low) * size > _WINDOW_BYTES:
                entry = unpack_from(self._read(file, middle, 1, cached_only=cached_only))
            else:
                window = self._read(file, low, high - low, cached_only=cached_only)
                window_start = low
                continue
            if holds(entry):
                low = middle + 1
                last = entry
            else:
                high = middle
        return low, last

    def _fields(self, slot: int) -> tuple[Any, ...]:
        return self.ENTRY.unpack(self._read(self._searched(), slot, 1, cached_only=False))

    def _searched(self, *, cached_only: bool = False) -> LogFile | None:
        """Return the open file; None while it is not open and all entries are in memory.

        Raises:
            NotCachedError, SegmentReleasedError, OSError: as `_opened` raises them.
        """
        first, entries = self._unwritten
        if self._file is None and entries and not first and not self._released:
            return None
        return self._opened(cached_only=cached_only)

    def _read(self, file: LogFile | None, slot: int, count: int, *, cached_only: bool) -> bytes | bytearray:
        """Return the bytes of `count` entries, with zeros beyond the end of the file."""
        size = self.ENTRY.size
        first, entries = self._unwritten
        if file is None and (not entries or slot < first):
            file = self._opened(cached_only=cached_only)  # they were written meanwhile
        if file is not None and (not entries or slot + count <= first):
            return file.pread(count * size, slot * size, cached_only=cached_only).ljust(count * size, b"\0")
        found: bytes | bytearray
        if slot >= first:
            found = entries[(slot - first) * size : (slot - first + count) * size]
        else:
            assert file is not None, "entries below the first unwritten one are in it"
            written_bytes = (first - slot) * size
            written = file.pread(written_bytes, slot * size, cached_only=cached_only)
            found = written.ljust(written_bytes, b"\0") + entries[: count * size - written_bytes]
        return found.ljust(count * size, b"\0")

    def _opened(self, *, cached_only: bool = False) -> LogFile:
        """Return the open file; a removed one is created again, empty.

        Raises:
            NotCachedError: with `cached_only`, if it is not open.
            SegmentReleasedError: the segment has left the log.
            OSError: it cannot be opened.
        """
        file = self._file
        if file is None:
            if cached_only:
                raise NotCachedError(f"{self.path} is not open")
            with self._lock:
                file = self._open_unless_released()
        return file

    def _open_unless_released(self) -> LogFile:
        """Return the open file, for a holder of the lock.

        Raises:
            SegmentReleasedError: the segment has left the log.
        """
        if self._released:
            raise SegmentReleasedError(f"{self.path} has left its log")
        return self._open()

    def _open(self) -> LogFile:
        """Return the open file, preallocated if entries are added; for a holder of the lock."""
        if self._file is None:
            file = LogFile.open(self.path, create=True)
            if self._is_writable:
                self._preallocate(file.fileno())
            self._file = file
        return self._file

    def _preallocate(self, descriptor: int) -> None:
        """Make room for all entries behind those in the file; for a holder of the lock."""
        first, entries = self._unwritten
        # Truncating to the entries first leaves zeros behind them.
        os.ftruncate(descriptor, (first if entries else self.entry_count) * self.ENTRY.size)
        os.ftruncate(descriptor, self.max_entries * self.ENTRY.size)
