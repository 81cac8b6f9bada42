"""Iteration over the batch headers of a log file, with as few reads as possible.

`walk_headers` reads headers only and trusts them: for look-ups in a recovered log. `walk_with_crc` reads
everything and checks the CRCs: for recovery.
"""

import os
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from sparklog.node.storage.file_region import LogFile
from sparklog.protocol.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    CorruptBatchError,
)
from sparklog.protocol.types import Offset

_LENGTH_OVERHEAD: Final = 12
_SMALL_WINDOW_BYTES: Final = 4 * 1024
_LARGE_WINDOW_BYTES: Final = 256 * 1024
_CRC_WINDOW_BYTES: Final = 1024 * 1024
_TORN_BYTES_LOOKED_AT: Final = 64 * 1024 * 1024


def header_at(file: LogFile, position: int, end: int, *, cached_only: bool = False) -> BatchHeader:
    """Return the header of the batch that lies at `position` and ends at or below `end`.

    Raises:
        CorruptBatchError: there is no such batch.
        NotCachedError: with `cached_only`, it would have to come from the disk.
        OSError: the file cannot be read.
    """
    window = file.pread(HEADER_BYTES, position, cached_only=cached_only)
    return _sound_header(file, window, 0, position, end)


def _sound_header(
    file: LogFile, window: bytes | bytearray, window_position: int, position: int, end: int
) -> BatchHeader:
    if len(window) - window_position < HEADER_BYTES:
        raise CorruptBatchError(f"{file.path} has no whole batch header at position {position}")
    header = BatchHeader._make(HEADER.unpack_from(window, window_position))
    if (
        header.magic != MAGIC
        or header.batch_length < HEADER_BYTES - _LENGTH_OVERHEAD
        or position + header.batch_length + _LENGTH_OVERHEAD > end
        or header.last_offset_delta < 0
        or header.base_offset < 0
    ):
        raise CorruptBatchError(
            f"{file.path} has no whole batch at position {position}: magic {header.magic}, length "
            f"{header.batch_length}, base offset {header.base_offset}, {end - position} bytes left"
        )
    return header


def walk_headers(
    file: LogFile, position: int, end: int, *, cached_only: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches that lie in [position, end), reading only headers.

    Small batches are read many at a time, large ones a header at a time.

    Raises:
        CorruptBatchError: the range does not consist of whole batches.
        NotCachedError: with `cached_only`, they would have to come from the disk.
        OSError: the file cannot be read.
    """
    window: bytes | bytearray = b""
    window_start = position
    window_bytes = _SMALL_WINDOW_BYTES
    in_window = 0
    while position < end:
        window_position = position - window_start
        if window_position + HEADER_BYTES > len(window):
            window_bytes = _LARGE_WINDOW_BYTES if in_window > 8 else _SMALL_WINDOW_BYTES
            window = file.pread(min(window_bytes, end - position), position, cached_only=cached_only)
            window_start = position
            window_position = 0
            in_window = 0
        in_window += 1
        header = _sound_header(file, window, window_position, position, end)
        yield position, header
        position += header.batch_length + _LENGTH_OVERHEAD


def walk_with_crc(file: LogFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield (position, header, whether the CRC is right) of the batches in [position, end).

    Memory is bounded by the window, even if a damaged header claims more.

    Raises:
        CorruptBatchError: at the first byte that does not belong to a whole batch.
        OSError: the file cannot be read.
    """
    descriptor = file.fileno()
    window = b""
    window_start = position
    while position < end:
        window_position = position - window_start
        if window_position + HEADER_BYTES > len(window):
            window = os.pread(descriptor, min(_CRC_WINDOW_BYTES, end - position), position)
            window_start = position
            window_position = 0
        header = _sound_header(file, window, window_position, position, end)
        batch_end = position + header.batch_length + _LENGTH_OVERHEAD
        crc = 0
        covered = position + CRC_START
        while covered < batch_end:
            if covered >= window_start + len(window):
                window = os.pread(descriptor, min(_CRC_WINDOW_BYTES, end - covered), covered)
                window_start = covered
                if not window:
                    raise CorruptBatchError(f"{file.path} ends at {covered}, inside a batch")
            part_end = min(batch_end, window_start + len(window))
            crc = crc32c(memoryview(window)[covered - window_start : part_end - window_start], crc)
            covered = part_end
        yield position, header, crc == header.crc
        position = batch_end


def is_torn_append(file: LogFile, position: int, end: int, expected_offset: Offset) -> bool:
    """Whether [position, end) can be the beginning of a batch whose append was interrupted.

    It can't if the batch is complete and only its header claims more.

    Raises:
        OSError: the file cannot be read.
    """
    rest = os.pread(file.fileno(), min(end - position, _TORN_BYTES_LOOKED_AT), position)
    if len(rest) < HEADER_BYTES:
        return True
    header = BatchHeader._make(HEADER.unpack_from(rest))
    if (
        header.magic != MAGIC
        or header.base_offset != expected_offset
        or header.last_offset_delta < 0
        or position + header.batch_length + _LENGTH_OVERHEAD <= end
    ):
        return False
    view = memoryview(rest)
    next_offset = (header.next_offset).to_bytes(8, "big", signed=True)
    whole_end = rest.find(next_offset, HEADER_BYTES)
    while whole_end >= 0:
        if crc32c(view[CRC_START:whole_end]) == header.crc:
            return False
        whole_end = rest.find(next_offset, whole_end + 1)
    return crc32c(view[CRC_START:]) != header.crc
