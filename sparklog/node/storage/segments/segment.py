"""A segment: one `.log` file with the indexes into it.

A segment holds the batches from its base offset up to the next segment's. The last one is active: it is
appended to, its indexes are preallocated. The others are sealed: their indexes are cut to their entries.
Sizes, positions and largest timestamp are kept in memory: an append asks the file system for none of them.

Rules kept:

- A failed append leaves the segment unchanged.
- Look-ups are safe beside an append and beside a truncation in another thread; beside a truncation their
  result is undefined, and the caller has to repeat them (`truncations`). They change only `positions`, and
  an index that is wrong.
- With `cached_only` a look-up does not read from the disk, but raises `NotCachedError`.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparklog.node.storage.file_region import Buffer, LogFile, NotCachedError
from sparklog.node.storage.files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file,
    sync_descriptor,
)
from sparklog.node.storage.index.offset_index import INDEXED_AT_ONCE, OffsetIndex, OffsetPosition
from sparklog.node.storage.index.time_index import TimeIndex
from sparklog.node.storage.index.transaction_index import TransactionIndex
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.segments.batch_positions import BatchPositions
from sparklog.node.storage.segments.batch_walk import header_at, walk_headers
from sparklog.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    CorruptBatchError,
)
from sparklog.protocol.types import Offset, TimestampMs

logger = logging.getLogger(__name__)

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_REBUILT_INTERVAL_BYTES: Final = 4096
_WINDOW_BYTES: Final = 8192


class Segment:
    """One segment of a log. Created by `create` or by `recovery`."""

    __slots__ = (
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "file",
        "first_timestamp_ms",
        "max_timestamp_ms",
        "name_suffix",
        "offset_index",
        "offset_of_max_timestamp",
        "positions",
        "roll_jitter_ms",
        "size_bytes",
        "synced",
        "tail",
        "time_index",
        "transaction_index",
        "truncated",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: Offset,
        file: LogFile,
        size_bytes: int,
        *,
        created_ms: TimestampMs,
        roll_jitter_ms: int = 0,
        name_suffix: str = "",
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size_bytes = size_bytes
        self.name_suffix = name_suffix
        """Suffix of its files while it is not in its place; see `segment_files`."""
        place = directory, base_offset
        self.offset_index = OffsetIndex(*place, OFFSET_INDEX_SUFFIX + name_suffix)
        self.time_index = TimeIndex(*place, TIME_INDEX_SUFFIX + name_suffix)
        self.transaction_index = TransactionIndex(*place, TRANSACTION_INDEX_SUFFIX + name_suffix)
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.first_timestamp_ms: TimestampMs | None = None
        """Largest timestamp of the first batch, from which segment.ms counts."""
        self.max_timestamp_ms: TimestampMs = -1
        self.offset_of_max_timestamp: Offset = base_offset
        """Last offset of the batch with `max_timestamp_ms`."""
        self.bytes_since_index_entry = 0
        self.tail: tuple[Offset, int] = (base_offset, size_bytes)
        """Log end offset and its position in the active segment's file, changed in one step."""
        self.synced = False
        """Sealed and fsynced: no flush is needed again."""
        self.truncated = False
        """Truncated since the last flush: the index on disk may have entries of removed batches."""
        self.positions = BatchPositions()

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: Offset,
        config: LogConfig,
        *,
        now_ms: TimestampMs,
        roll_jitter_ms: int = 0,
        name_suffix: str = "",
    ) -> "Segment":
        """Create an empty active segment's file of records; existing files are removed.

        Raises:
            OSError: they cannot be created.
        """
        for suffix in SEGMENT_SUFFIXES:
            offset_file(directory, base_offset, suffix + name_suffix).unlink(missing_ok=True)
        file = LogFile.open(offset_file(directory, base_offset, LOG_SUFFIX + name_suffix), create=True)
        segment = cls(
            directory,
            base_offset,
            file,
            0,
            created_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            name_suffix=name_suffix,
        )
        segment.make_active(config)
        return segment

    def make_active(self, config: LogConfig) -> None:
        self.time_index.make_writable(config.segment_index_bytes)
        self.offset_index.make_writable(config.segment_index_bytes)

    def seal(self) -> None:
        """Append the largest timestamp to the time index and cut the indexes to size.

        Raises:
            OSError: the indexes cannot be written; the segment may be appended to as before.
        """
        self.time_index.maybe_append(self.max_timestamp_ms, self.offset_of_max_timestamp)
        for index in (self.time_index, self.offset_index):
            index.trim(is_needed=bool(self.size_bytes or self.name_suffix))
        self.time_index.end_appending()
        self.offset_index.end_appending()
        self.positions.forget_older()

    def append(
        self, parts: list[Buffer], total_bytes: int, headers: Sequence[BatchHeader], config: LogConfig
    ) -> None:
        """Append the batches in `parts`; `headers` describe them, with their final offsets.

        Raises:
            OSError: nothing was appended.
        """
        start = position = self.size_bytes
        last_offset = self.tail[0] - 1
        index_entries = self.offset_index.entry_count, self.time_index.entry_count
        max_timestamp_ms, offset_of_max_timestamp = self.max_timestamp_ms, self.offset_of_max_timestamp
        bytes_since_index_entry = self.bytes_since_index_entry
        interval_bytes = config.index_interval_bytes
        note_position = self.positions.note
        try:
            self.file.pwrite(parts, total_bytes, start)
            for header in headers:
                base_offset = header.base_offset
                last_offset = base_offset + header.last_offset_delta
                size_bytes = header.batch_length + LENGTH_OVERHEAD
                timestamp_ms = header.max_timestamp
                if timestamp_ms > max_timestamp_ms:
                    max_timestamp_ms = timestamp_ms
                    offset_of_max_timestamp = last_offset
                if bytes_since_index_entry > interval_bytes:
                    self.offset_index.append(last_offset, position)
                    self.time_index.maybe_append(max_timestamp_ms, offset_of_max_timestamp)
                    bytes_since_index_entry = 0
                    if self.offset_index.unwritten_bytes >= INDEXED_AT_ONCE:
                        self.time_index.write()  # first: recovery trusts an offset whose time is there, too
                        self.offset_index.write()
                bytes_since_index_entry += size_bytes
                note_position(base_offset, position)
                position += size_bytes
        except OSError:
            self._undo_append(start, index_entries)
            raise
        if self.first_timestamp_ms is None and headers:
            self.first_timestamp_ms = headers[0].max_timestamp
        self.bytes_since_index_entry = bytes_since_index_entry
        self.size_bytes = position
        self.tail = (last_offset + 1, position)
        # After the size: a thread that sees the timestamp also finds its batch.
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.max_timestamp_ms = max_timestamp_ms

    def _undo_append(self, end: int, index_entries: tuple[int, int]) -> None:
        """Cut off the rest of a failed append; if that fails, the next append overwrites it."""
        self.positions = BatchPositions()
        try:
            os.ftruncate(self.file.fileno(), end)
        finally:
            self.offset_index.truncate_to_entries(index_entries[0])
            self.time_index.truncate_to_entries(index_entries[1])

    def position_of(self, offset: Offset, *, cached_only: bool = False) -> int:
        """Return the position of the first batch that ends at or after `offset`; the end if there is none.

        Raises:
            NotCachedError: with `cached_only`.
            SegmentReleasedError: the segment has left the log.
            CorruptBatchError, OSError: the file is damaged.
        """
        positions = self.positions
        known = positions.get(offset)
        if known is not None:
            return known
        end = self.size_bytes
        start = self.scan_start(offset, cached_only=cached_only)
        for position, header in walk_headers(self.file, start, end, cached_only=cached_only):
            if header.base_offset + header.last_offset_delta >= offset:
                positions.note(offset, position)
                return position
        return end

    def scan_start(self, offset: Offset, *, cached_only: bool = False) -> int:
        """Return the position of a batch from which to scan for `offset`, near it by the index.

        An index entry that does not match its batch makes the index be rebuilt: one wrong bit in it would
        hide records.

        Raises:
            NotCachedError: with `cached_only`.
            SegmentReleasedError: the segment has left the log.
            CorruptBatchError, OSError: the file is damaged.
        """
        index = self.offset_index
        removals = index.removals
        entry = index.lookup(offset, cached_only=cached_only)
        if entry is None:
            return 0
        if not self._leads_to_batch(entry, cached_only=cached_only):
            self._rebuild_offset_index(entry, removals, cached_only=cached_only)
            entry = index.lookup(offset, cached_only=cached_only)
            if entry is None or not self._leads_to_batch(entry, cached_only=cached_only):
                return 0
        return entry.position

    def _leads_to_batch(self, entry: OffsetPosition, *, cached_only: bool) -> bool:
        if not 0 < entry.position < self.size_bytes:
            return False
        try:
            header = header_at(self.file, entry.position, self.size_bytes, cached_only=cached_only)
        except CorruptBatchError:
            return False
        return header.base_offset + header.last_offset_delta == entry.last_offset

    def _rebuild_offset_index(self, wrong: OffsetPosition, removals: int, *, cached_only: bool) -> None:
        """Rebuild a wrong index from every header of the segment.

        An index that was truncated since it had `removals` is left alone.
        """
        index = self.offset_index
        if cached_only:
            raise NotCachedError(f"{index.path} needs to be rebuilt")
        entry_count = index.entry_count
        entries: list[OffsetPosition] = []
        last_position = 0
        for position, header in walk_headers(self.file, 0, self.size_bytes):
            if position - last_position > _REBUILT_INTERVAL_BYTES:
                entries.append(OffsetPosition(header.last_offset, position))
                last_position = position
        if index.replace(entries, removals=removals, entry_count=entry_count):
            logger.error("%s was rebuilt: its entry %r did not match the log", index.path, wrong)

    def whole_batches(
        self, start: int, limit: int, end: int, *, min_one_batch: bool, cached_only: bool = False
    ) -> tuple[int, Offset | None]:
        """Return the end of the last whole batch that ends at or below `limit`, and the offset after it.

        `start` and `end` are batch boundaries, `limit` any position between. If no whole batch fits, it is
        the first one's end with `min_one_batch`, else `start`. The offset is None if the end is `end`, whose
        offset the caller knows, or if there is no batch.
        """
        if limit >= end:
            return end, None
        removals = self.offset_index.removals
        entry = self.offset_index.last_at_or_below(limit, cached_only=cached_only)
        if (
            entry is not None
            and entry.position > start
            and not self._leads_to_batch(entry, cached_only=cached_only)
        ):
            self._rebuild_offset_index(entry, removals, cached_only=cached_only)
            entry = None
        position = start
        next_offset: Offset | None = None
        if entry is not None and entry.position > start:
            position = entry.position
        # Entries are index.interval.bytes and a batch apart: one read of that size usually covers the rest.
        length = min(_WINDOW_BYTES if limit - position > 256 else HEADER_BYTES, end - position)
        window = self.file.pread(length, position, cached_only=cached_only)
        window_start = position
        while True:
            offset_in_window = position - window_start
            if offset_in_window + HEADER_BYTES > len(window):
                window = self.file.pread(
                    min(_WINDOW_BYTES, end - position), position, cached_only=cached_only
                )
                window_start = position
                offset_in_window = 0
                if len(window) < HEADER_BYTES:
                    return position, next_offset
            base_offset, batch_length = HEADER.unpack_from(window, offset_in_window)[:2]
            batch_end = position + batch_length + LENGTH_OVERHEAD
            if batch_length < HEADER_BYTES - LENGTH_OVERHEAD or batch_end > end:
                raise CorruptBatchError(
                    f"{self.file.path} has no whole batch at position {position}: length {batch_length}"
                )
            if batch_end > limit:
                break
            position = batch_end
        if position == start:
            if not min_one_batch:
                return start, None
            header = HEADER.unpack_from(window, offset_in_window)
            return batch_end, header[0] + header[6] + 1
        return position, base_offset

    def first_timestamp(self) -> TimestampMs | None:
        """Return the largest timestamp of the first batch; None for an empty segment."""
        if self.first_timestamp_ms is None and self.size_bytes:
            _, header = next(walk_headers(self.file, 0, self.size_bytes))
            self.first_timestamp_ms = header.max_timestamp
        return self.first_timestamp_ms

    def load_max_timestamp(self) -> None:
        """Take a sealed segment's largest timestamp from its time index, where it is the last entry."""
        last = self.time_index.last_entry()
        if last is not None:
            self.max_timestamp_ms, self.offset_of_max_timestamp = last

    def largest_timestamp(self) -> TimestampMs:
        """Return the largest record timestamp, or the file's modification time if records have none."""
        if self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return int(os.fstat(self.file.fileno()).st_mtime * 1000)

    def truncate_to(self, offset: Offset, config: LogConfig) -> int:
        """Remove the batches from `offset` on and make the segment active; return the removed bytes.

        Raises:
            OSError, CorruptBatchError: the files cannot be read or cut.
        """
        position = self.position_of(offset)
        removed_bytes = self.size_bytes - position
        # In this order, a concurrent reader finds no more than there is, rebuilds no index from batches about
        # to be removed, and notes no outdated position.
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.size_bytes = position
        self.offset_index.truncate_to(offset)
        os.ftruncate(self.file.fileno(), position)
        self.positions = BatchPositions()
        self.make_active(config)
        self.bytes_since_index_entry = 0
        self.reload_max_timestamp()
        if position == 0:
            self.first_timestamp_ms = None
        self.first_timestamp()
        self.synced = False
        self.truncated = True
        return removed_bytes

    def reload_max_timestamp(self) -> Offset:
        """Find the largest timestamp again, from the indexes' last entries on; return the end offset.

        Raises:
            CorruptBatchError: the file does not consist of whole batches from there on.
        """
        last_time = self.time_index.last_entry()
        self.max_timestamp_ms = -1 if last_time is None else last_time.timestamp_ms
        self.offset_of_max_timestamp = self.base_offset if last_time is None else last_time.offset
        last_entry = self.offset_index.last_entry()
        next_offset = self.base_offset
        start = 0 if last_entry is None else last_entry.position
        for position, header in walk_headers(self.file, start, self.size_bytes):
            next_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms = header.max_timestamp
                self.offset_of_max_timestamp = header.last_offset
            if position == 0:
                self.first_timestamp_ms = header.max_timestamp
        self.bytes_since_index_entry = self.size_bytes - start
        self.tail = (next_offset, self.size_bytes)
        return next_offset

    def flush(self, *, sealed: bool) -> None:
        """fsync the log and, of a `sealed` segment, the indexes.

        Recovery checks and completes an active segment's indexes, except after a truncation, which may leave
        plausible but wrong entries. Unless it was truncated meanwhile, `flushed` is called afterwards.

        Raises:
            OSError: as fsync raises.
        """
        sync_descriptor(self.file.fileno(), data_only=True)
        if sealed or self.truncated:
            for index in (self.time_index, self.offset_index, self.transaction_index):
                index.sync()

    def flushed(self, *, sealed: bool) -> None:
        """Record that the segment's state at the start of a `flush` is on the disk."""
        self.truncated = False
        self.synced = sealed

    def path(self, suffix: str) -> Path:
        return offset_file(self.directory, self.base_offset, suffix + self.name_suffix)

    def move_to(self, directory: Path) -> None:
        """Set the directory after a rename."""
        self.directory = directory
        for file in (self.file, self.offset_index, self.time_index, self.transaction_index):
            file.path = directory / file.path.name

    def close_indexes(self) -> None:
        """Close the indexes' descriptors until the next look-up: most segments are rarely read."""
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.close()

    def release(self) -> None:
        """Close the indexes for good, without changing them; a file closes with its last reader."""
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.release()

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size_bytes={self.size_bytes})"
