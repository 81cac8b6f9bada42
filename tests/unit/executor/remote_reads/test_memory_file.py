"""Files in memory, sent from as log files are."""

import gc
import os
from contextlib import suppress

from sparklog.executor.remote_reads.memory_file import MemoryFile, MemoryFiles
from sparklog.node.storage.file_region import FileRegion


def file_of(data: bytes) -> MemoryFile:
    file = MemoryFile("a")
    file.append([data])
    return file


def test_memory_is_counted_and_freed_with_the_last_region() -> None:
    """An evicted group stays in memory while one of its regions is being sent."""
    freed: list[None] = []
    files = MemoryFiles(lambda: freed.append(None))
    file = file_of(bytes(100))
    files.add(file)
    descriptor, size_bytes = file.fileno(), 100
    inode = os.fstat(descriptor).st_ino
    region = FileRegion(file, 10, 20)
    del file
    gc.collect()
    assert (files.size_bytes, len(freed), os.fstat(descriptor).st_size) == (size_bytes, 0, size_bytes)
    del region
    gc.collect()
    assert (files.size_bytes, len(freed)) == (0, 1)
    # Its number may be that of another file by now, which another thread has opened.
    with suppress(OSError):
        assert os.fstat(descriptor).st_ino != inode


def test_memory_file_is_in_memory_for_the_sender() -> None:
    """Nothing waits for a disk that is not there."""
    file = MemoryFile("a")
    file.append([b"ab", b"cd"])
    file.append([b"ef"])
    assert FileRegion(file, 0, 6).is_cached()
    assert file.pread(6, 0) == b"abcdef"
