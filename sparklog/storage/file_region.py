"""A stretch of a log file that can be sent without reading it into Python.

Rule kept: the file stays open for as long as anything refers to it. A segment that is deleted or
truncated while a response is still being sent keeps its bytes on disk until the last `FileRegion` is
dropped. A truncation takes bytes away from under a region though: `os.sendfile` then returns 0 before
`length` bytes are sent, and the sender must close the connection, because the frame it has announced can
no longer be completed.
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
_UNANSWERABLE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
"""File systems without RWF_NOWAIT (tmpfs on older kernels, some overlays) say so; then nothing is known."""


class NotCachedError(Exception):
    """What is to be read is not in memory, and the caller may not wait for the disk."""


class LogFile:
    """An open file descriptor, closed when the last reference to this object goes."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: Final = descriptor

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> "LogFile":
        """Open `path` for reading and writing.

        Raises:
            OSError: the file is missing (and `create` is false) or cannot be opened.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return cls(path, os.open(path, flags, 0o644))

    def fileno(self) -> int:
        """Return the file descriptor, valid while this object is referenced."""
        return self._descriptor

    def pread(self, length: int, position: int, *, cached_only: bool = False) -> bytes | bytearray:
        """Return up to `length` bytes from `position` on; fewer only at the end of the file.

        `cached_only` is for the event loop: what the page cache does not hold is not waited for. Where the
        file system cannot tell, everything counts as cached.

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
                # Not the end of the file, but of what is cached; it has come in just now.
                return os.pread(self._descriptor, length, position)
        except BlockingIOError:
            raise NotCachedError(f"{self.path} at position {position}") from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return os.pread(self._descriptor, length, position)
        return found if count == length else found[:count]

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Read into a buffer what lies from `position` on; return how many bytes that are.

        Fewer than it has room for only at the end of the file.

        Raises:
            OSError: the file cannot be read.
        """
        return os.preadv(self._descriptor, [buffer], position)

    def pwrite(self, parts: list[Buffer], total_bytes: int, position: int) -> None:
        """Write `parts`, which have so many bytes together, to `position`: in one call, if that takes all.

        Raises:
            OSError: some of them may have been written.
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
        """Ask the file system for the file's length."""
        return os.fstat(self._descriptor).st_size

    def __del__(self) -> None:
        os.close(self._descriptor)

    def __repr__(self) -> str:
        return f"LogFile({str(self.path)!r})"


class FileRegion:
    """`length` bytes of `file` from `position` on: whole record batches, as they lie on disk."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        """Return the descriptor to give to `os.sendfile`, valid while this region is referenced."""
        return self.file.fileno()

    def is_cached(self, start: int = 0, length: int | None = None) -> bool:
        """Return whether `length` bytes from `start` on can be sent without waiting for the disk.

        Judged by the ends, without waiting; where the file system cannot tell, they count as cached. What
        cannot be read is not: whoever waits for it is told why.
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
        # Linux hands out at most 2 GiB a call.
        chunks = [chunk]
        received = len(chunk)
        while chunk and received < wanted:
            chunk = os.pread(self.file.fileno(), wanted - received, self.position + received)
            chunks.append(chunk)
            received += len(chunk)
        return b"".join(chunks)

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path.name}, position={self.position}, length={self.length})"
