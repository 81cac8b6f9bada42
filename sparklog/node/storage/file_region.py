"""A range of a log file that is sent without being read into Python.

Rule kept: the file stays open while anything refers to it. A segment that is deleted while a response is
being sent keeps its bytes on disk until the last `FileRegion` is dropped. A truncation does take bytes from
under a region: `os.sendfile` then returns 0 before `length` bytes are sent, and the sender must close the
connection, because it cannot complete the frame that it has announced.
"""

import errno
import os
from pathlib import Path
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | memoryview

_VECTORS_A_CALL: Final = 1024
"""IOV_MAX of Linux."""
_PAGE_BYTES: Final = 4096
_PROBE: Final = bytearray(1)
_NO_DESCRIPTOR: Final = -1
"""The descriptor of a file that does not exist yet: calls of the system with it fail (EBADF)."""
_UNANSWERABLE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
"""Errors of file systems without RWF_NOWAIT (tmpfs on older kernels, some overlays): the cache can't be
queried."""


class NotCachedError(Exception):
    """The data is not in memory, and the caller may not wait for the disk."""


class LogFile:
    """An open file descriptor, closed with the last reference to this object."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> "LogFile":
        """Open `path` for reading and writing.

        Raises:
            OSError: the file is missing (and `create` is false) or cannot be opened.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return cls(path, os.open(path, flags, 0o644))

    @classmethod
    def absent(cls, path: Path) -> "LogFile":
        """Return a file that does not exist: `create` comes before every other use."""
        return cls(path, _NO_DESCRIPTOR)

    def create(self) -> None:
        """Create the absent file.

        Raises:
            OSError: it cannot be created, or exists.
        """
        assert self._descriptor == _NO_DESCRIPTOR, f"{self.path} is open"
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
        self._descriptor = os.open(self.path, flags, 0o644)

    def fileno(self) -> int:
        """Return the file descriptor, valid while this object is referenced."""
        return self._descriptor

    def pread(self, length: int, position: int, *, cached_only: bool = False) -> bytes | bytearray:
        """Return up to `length` bytes from `position` on; fewer only at the end of the file.

        With `cached_only`, for the event loop, data outside the page cache is not waited for. If the file
        system does not support the query, everything counts as cached.

        Raises:
            NotCachedError: with `cached_only`.
            OSError: the file cannot be read.
        """
        if not cached_only:
            return os.pread(self._descriptor, length, position)
        found = bytearray(length)
        try:
            count = os.preadv(self._descriptor, [found], position, os.RWF_NOWAIT)
            if count < length and os.preadv(
                self._descriptor, [bytearray(1)], position + count, os.RWF_NOWAIT
            ):
                # This is not the end of the file but of the cached part; it has been read in just now.
                return os.pread(self._descriptor, length, position)
        except BlockingIOError:
            raise NotCachedError(f"{self.path} at position {position}") from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return os.pread(self._descriptor, length, position)
        return found if count == length else found[:count]

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Read from `position` into a buffer; return the number of bytes.

        Fewer than it has room for only at the end of the file.

        Raises:
            OSError: the file cannot be read.
        """
        return os.preadv(self._descriptor, [buffer], position)

    def pwrite(self, parts: list[Buffer], total_bytes: int, position: int) -> None:
        """Write `parts`, of `total_bytes` together, at `position`; in one call if the system accepts all.

        Raises:
            OSError: some bytes may have been written.
        """
        written = os.pwritev(self._descriptor, parts[:_VECTORS_A_CALL], position)
        while written < total_bytes:
            rest: list[Buffer] = []
            skip = written
            for part in parts:
                if skip < len(part):
                    rest.append(memoryview(part)[skip:])
                    skip = 0
                else:
                    skip -= len(part)
            count = os.pwritev(self._descriptor, rest[:_VECTORS_A_CALL], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, f"no more bytes at {position + written}", str(self.path))
            written += count

    def size_bytes(self) -> int:
        """Return the file's length from the file system."""
        return os.fstat(self._descriptor).st_size

    def __del__(self) -> None:
        if self._descriptor != _NO_DESCRIPTOR:
            os.close(self._descriptor)

    def __repr__(self) -> str:
        return f"LogFile({str(self.path)!r})"


class FileRegion:
    """`length` bytes of `file` from `position` on: whole record batches, as on disk."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        """Return the descriptor for `os.sendfile`, valid while this region is referenced."""
        return self.file.fileno()

    def is_cached(self, start: int = 0, length: int | None = None) -> bool:
        """Return whether `length` bytes from `start` on can be sent without waiting for the disk.

        Judged by the first and last page, without waiting; they count as cached if the file system does not
        support the query. Unreadable bytes are not cached: the blocking read then raises the error.
        """
        descriptor, position = self.file.fileno(), self.position + start
        end = self.position + (self.length if length is None else start + length)
        try:
            os.preadv(descriptor, (_PROBE,), position, os.RWF_NOWAIT)
            if end - position > _PAGE_BYTES:
                os.preadv(descriptor, (_PROBE,), end - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno in _UNANSWERABLE
        return True

    def read(self) -> bytes:
        """Return the bytes; fewer than `length` if the file was truncated meanwhile."""
        wanted = self.length
        chunk = os.pread(self.file.fileno(), wanted, self.position)
        if len(chunk) == wanted:
            return chunk
        # Linux returns at most 2 GiB a call.
        chunks = [chunk]
        received = len(chunk)
        while chunk and received < wanted:
            chunk = os.pread(self.file.fileno(), wanted - received, self.position + received)
            chunks.append(chunk)
            received += len(chunk)
        return b"".join(chunks)

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path.name}, position={self.position}, length={self.length})"
