"""Reads of a log file some megabytes at a time: whole batches, and their records in columns.

The log is not trusted here: a batch with a wrong CRC, length or count ends the cleaning
(`CorruptBatchError`), and its log is left unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from sparklog.node.storage.file_region import LogFile
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    iterate_headers,
    read_header,
)
from sparklog.protocol.records.codecs import DecompressionLimitError
from sparklog.protocol.records.columns import LocatedRecords
from sparklog.protocol.records.decode import OpenedBatch, locate_records, open_batch
from sparklog.protocol.records.varints import MalformedRecordsError

_GROUP_BYTES: Final = 8 * 1024 * 1024
"""Decompressed records that are examined at once."""
_GROUP_RECORDS: Final = 64 * 1024


class Window(NamedTuple):
    """A range of a log file, and the position and header of each batch in it."""

    data: memoryview
    batches: list[tuple[int, BatchHeader]]


def windows(
    file: LogFile,
    position: int,
    end: int,
    window_bytes: int,
    take: Callable[[int], None] = lambda size_bytes: None,
) -> Iterator[Window]:
    """Yield the batches in [position, end) of a file, `window_bytes` or at least one batch at a time.

    `take` is called with the number of bytes before they are read. A window is overwritten by the next one:
    allocating memory costs as much as reading.

    Raises:
        CorruptBatchError: the range does not consist of whole batches.
        OSError: the file cannot be read.
    """
    wanted = window_bytes
    buffer = bytearray(min(window_bytes, end - position))
    while position < end:
        length = min(wanted, end - position)
        take(length)
        if len(buffer) < length:
            buffer = bytearray(length)
        data = memoryview(buffer)[: file.pread_into(memoryview(buffer)[:length], position)]
        batches = list(iterate_headers(data))
        if not batches:
            wanted = HEADER_BYTES
            if len(data) >= HEADER_BYTES:
                wanted = max(wanted, read_header(data).size_bytes)
            if wanted <= length or position + wanted > end or len(data) < length:
                raise CorruptBatchError(f"{file.path} has no whole batch at position {position}")
            continue
        for at, header in batches:
            if header.last_offset_delta < 0 or header.base_offset < 0 or header.record_count < 0:
                raise CorruptBatchError(
                    f"{file.path} has a batch with offsets {header.base_offset} to {header.last_offset} and "
                    f"{header.record_count} records at position {position + at}"
                )
        yield Window(data, batches)
        at, header = batches[-1]
        position += at + header.size_bytes
        wanted = window_bytes


def records_in_groups(
    window: Window, numbers: Sequence[int], max_decompressed_bytes: int
) -> Iterator[tuple[list[int], LocatedRecords]]:
    """Yield the records of the batches with these `numbers`, in groups, with the numbers of each.

    Raises:
        CorruptBatchError: a batch is damaged.
        KafkaError: its codec cannot be read, or its records exceed `max_decompressed_bytes`.
    """
    group: list[OpenedBatch] = []
    members: list[int] = []
    size_bytes = count = 0
    for number in numbers:
        position, header = window.batches[number]
        check_crc(window.data, position, header)
        try:
            batch = open_batch(window.data, position, header, max_decompressed_bytes)
        except DecompressionLimitError as error:
            raise KafkaError(
                error.error_code,
                f"batch at offset {header.base_offset}: {error.message}; message.max.decompressed.bytes "
                "bounds the cleaner, too",
            ) from error
        if group and (
            (batch.payload is window.data) is not (group[0].payload is window.data)
            or size_bytes + batch.end - batch.position > _GROUP_BYTES
            or count + len(batch.starts) > _GROUP_RECORDS
        ):
            yield members, locate(group)
            group, members, size_bytes, count = [], [], 0, 0
        group.append(batch)
        members.append(number)
        size_bytes += batch.end - batch.position
        count += len(batch.starts)
    if group:
        yield members, locate(group)


def locate(group: Sequence[OpenedBatch]) -> LocatedRecords:
    """Return the records of the batches of a group.

    Raises:
        CorruptBatchError: they are malformed.
    """
    try:
        return locate_records(group)
    except MalformedRecordsError as error:
        raise CorruptBatchError(
            f"batch at offset {group[0].header.base_offset} or behind: {error}"
        ) from error
