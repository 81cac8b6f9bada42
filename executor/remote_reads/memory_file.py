"""Files in memory with batches of the object store's records, sent as regions of a log file are.

A memory file has a descriptor, so sendfile, TLS sending and reads work on it unchanged. Its memory is freed
with the last reference to it: the cache's or that of a region being sent.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sparklog.node.storage.file_region import Buffer, LogFile

_NAME: Final = "sparklog-remote"


class MemoryFile(LogFile):
    __slots__ = ("__weakref__", "length")

    def __init__(self, name: str) -> None:
        """Make an empty file; `name` is shown in messages.

        Raises:
            OSError: there is no descriptor.
        """
        super().__init__(Path(name), os.memfd_create(_NAME, os.MFD_CLOEXEC))
        self.length = 0

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write `parts` at the end.

        Raises:
            OSError: there is no memory.
        """
        total_bytes = sum(map(len, parts))
        self.pwrite(list(parts), total_bytes, self.length)
        self.length += total_bytes


class MemoryFiles:
    """The memory files that anything still refers to. Belongs to one thread, but for `on_freed`."""

    def __init__(self, on_freed: Callable[[], None], *, least_bytes: int = 0) -> None:
        """Count each file with `least_bytes` at least, since it takes a descriptor, too.

        `on_freed` is called, in any thread, when the memory of a file was freed.
        """
        self._on_freed = on_freed
        self._least_bytes = least_bytes
        self._files: weakref.WeakSet[MemoryFile] = weakref.WeakSet()

    def add(self, file: MemoryFile) -> None:
        self._files.add(file)
        weakref.finalize(file, self._on_freed).atexit = False

    @property
    def size_bytes(self) -> int:
        return sum(map(self.size_of, self._files))

    def size_of(self, file: MemoryFile) -> int:
        """Return what a file counts."""
        return max(file.length, self._least_bytes)
