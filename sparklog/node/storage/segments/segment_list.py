"""The segments of one log, oldest first: reading across them, rolling, truncating, dropping.

Rules kept:

- The tuple of segments is replaced as a whole, never changed, so that a concurrent reader sees the segments
  before or after a change.
- Files of dropped segments are renamed to `.deleted` and unlinked later, in a thread that may block
  (`rename_files_due`, `delete_files_due`), the oldest segment's first: a crash in between leaves a log
  without a hole. So are those of segments that a cleaning has replaced; until then the directory has the old
  segments, which are equivalent. Files dropped by a truncation are renamed at once, after all pending ones:
  they must not come back, and their names may be used again.
"""

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from sparklog.node.storage.file_region import FileRegion
from sparklog.node.storage.files import (
    DELETED_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    offset_file,
    sync_directory,
)
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.results import ReadResult
from sparklog.node.storage.segments.segment import MAX_RELATIVE_OFFSET, Segment
from sparklog.node.storage.segments.segment_files import mark_deleted, rename_files
from sparklog.protocol.types import Offset, TimestampMs


class _Dropped(NamedTuple):
    """A segment whose files wait to be renamed."""

    due_ms: TimestampMs
    """Time at which the files are unlinked."""
    segment: Segment

    @property
    def segments(self) -> Sequence[Segment]:
        return (self.segment,)


@dataclass(slots=True)
class _Replaced:
    """Segments whose files wait to be renamed, and the cleaned one that takes their place."""

    due_ms: TimestampMs
    replaced: tuple[Segment, ...]
    cleaned: Segment
    is_swapping: bool = False
    """Whether the cleaned segment's files end in `.swap`."""

    @property
    def segments(self) -> Sequence[Segment]:
        return (*self.replaced, self.cleaned)


class SegmentList:
    def __init__(self, directory: Path, segments: tuple[Segment, ...]) -> None:
        self._directory = directory
        self.all = segments
        """At least one, oldest first."""
        self.active = segments[-1]
        self._to_rename: deque[_Dropped | _Replaced] = deque()
        self._to_delete: list[tuple[TimestampMs, list[Path]]] = []
        """Files of dropped segments, and the time at which they are unlinked."""
        self._renaming = Lock()
        self._closed = False

    @property
    def first_named_offset(self) -> Offset:
        """Base offset of the first segment that a restart would load: others wait to be renamed."""
        waiting = (change.segment for change in tuple(self._to_rename) if isinstance(change, _Dropped))
        return next(waiting, self.all[0]).base_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        up_to_offset: Offset,
        min_one_batch: bool,
        cached_only: bool = False,
    ) -> ReadResult | None:
        """Find the batches for `Log.read`; None if `offset` is above the log's end.

        Also None below the first segment, if earlier ones were dropped after the caller checked the log start
        offset.

        Raises:
            NotCachedError: with `cached_only`, an index or header is not in memory.
            SegmentReleasedError: a segment has left the log meanwhile.
            CorruptBatchError, OSError: the log is damaged.
        """
        segments = self.all
        segment = segments[-1]
        positions = segment.positions
        log_end_offset, active_end = segment.tail
        if offset > log_end_offset:
            return None
        if offset >= up_to_offset or offset == log_end_offset:
            return ReadResult(None, offset)
        number = len(segments)
        end = active_end
        if offset < segment.base_offset:
            number = bisect_right(segments, offset, key=_base_offset)
            if number == 0:
                return None
            segment = segments[number - 1]
            positions = segment.positions
            end = segment.size_bytes
        while True:
            start = segment.position_of(offset, cached_only=cached_only)
            is_active = number == len(segments)
            end_offset = log_end_offset if is_active else segments[number].base_offset
            if up_to_offset < end_offset:
                end = segment.position_of(up_to_offset, cached_only=cached_only)
                end_offset = up_to_offset
            if start < end:
                break
            if is_active or end_offset == up_to_offset:
                return ReadResult(None, offset)
            # Compaction has removed the offsets at the end of this segment.
            segment = segments[number]
            positions = segment.positions
            number += 1
            end = active_end if number == len(segments) else segment.size_bytes
        region_end, next_offset = segment.whole_batches(
            start, start + max_bytes, end, min_one_batch=min_one_batch, cached_only=cached_only
        )
        if region_end <= start:
            return ReadResult(None, offset)
        if next_offset is None:
            next_offset = end_offset
        else:
            positions.note(next_offset, region_end)
        return ReadResult(FileRegion(segment.file, start, region_end - start), next_offset)

    def must_roll(
        self,
        config: LogConfig,
        more_bytes: int,
        max_timestamp_ms: TimestampMs,
        last_offset: Offset,
        now_ms: TimestampMs | None,
    ) -> bool:
        """Whether `more_bytes` need a new segment. `now_ms` counts if records have no timestamps."""
        active = self.active
        if last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not active.size_bytes:
            return False
        offsets, times = active.offset_index, active.time_index
        if (
            active.size_bytes + more_bytes > config.segment_bytes
            or offsets.entry_count >= offsets.max_entries
            or times.entry_count >= times.max_entries - 1  # the last one is for the roll
        ):
            return True
        first_timestamp_ms = active.first_timestamp_ms
        if first_timestamp_ms is None:
            first_timestamp_ms = active.first_timestamp()
        if first_timestamp_ms is not None and first_timestamp_ms >= 0:
            waited_ms = max_timestamp_ms - first_timestamp_ms
        elif now_ms is not None:
            waited_ms = now_ms - active.created_ms
        else:
            return False
        return waited_ms > config.segment_ms - active.roll_jitter_ms

    def roll(self, base_offset: Offset, config: LogConfig, now_ms: TimestampMs) -> None:
        """Seal the active segment and begin another; an empty one is dropped (its base offset is too low).

        The new one is created first: if that fails, the log is unchanged.

        Raises:
            OSError: files cannot be created or written.
        """
        created = self._create(base_offset, config, now_ms)
        if self.active.size_bytes:
            self.active.seal()
            self._use((*self.all, created))
        else:
            empty = self.active
            self._use((*self.all[:-1], created))
            self._delete([empty], config, now_ms)

    def truncate_to(self, offset: Offset, config: LogConfig) -> Offset:
        """Remove the batches that reach to `offset` or above; return the new log end offset.

        Raises:
            CorruptBatchError, OSError: files cannot be read or cut.
        """
        # Segments that a cleaning replaced must not come back with those that are cut off now.
        self.rename_files_due()
        kept = tuple(segment for segment in self.all if segment.base_offset <= offset)
        removed = self.all[len(kept) :]
        self._use(kept)
        self._delete(removed, config, self.active.created_ms)
        self.active.truncate_to(offset, config)
        return self.active.tail[0]

    def truncate_fully_and_start_at(self, offset: Offset, config: LogConfig) -> None:
        """Drop all segments and begin at `offset`.

        Raises:
            OSError: files cannot be created or renamed.
        """
        now_ms = self.active.created_ms
        # A pending segment may have the base offset `offset`, or a temporary name.
        self.rename_files_due()
        self._delete(self.all, config, now_ms)
        self._use((self._create(offset, config, now_ms),))

    def drop_first(self, count: int, config: LogConfig, now_ms: TimestampMs) -> None:
        """Drop the `count` oldest segments, which are not all. Their files stay until `delete_files_due`."""
        removed = self.all[:count]
        self._use(self.all[count:])
        due_ms = now_ms + config.file_delete_delay_ms
        self._to_rename += (_Dropped(due_ms, segment) for segment in removed)

    def replace(
        self, base_offsets: Sequence[Offset], cleaned: Segment, config: LogConfig, now_ms: TimestampMs
    ) -> bool:
        """Put a segment, whose files end in `.cleaned`, in the place of its sources.

        Returns False, without a change, if one of them is gone. Pending readers keep their segments.
        `rename_files_due` renames the files.
        """
        segments = self.all
        first = number_of(segments, base_offsets[0])
        replaced = segments[first : first + len(base_offsets)]
        if [segment.base_offset for segment in replaced] != list(base_offsets) or self.active in replaced:
            return False
        self._use((*segments[:first], cleaned, *segments[first + len(replaced) :]))
        self._to_rename.append(_Replaced(now_ms + config.file_delete_delay_ms, replaced, cleaned))
        return True

    def rename_files_due(self) -> None:
        """Rename the files of segments dropped by `drop_first` and replaced by `replace`.

        Raises:
            OSError: files cannot be renamed; the next call retries.
        """
        with self._renaming:
            # A closed log's directory may be removed, and another log have its name.
            while self._to_rename and not self._closed:
                change = self._to_rename[0]
                if isinstance(change, _Dropped):
                    self._rename([change.segment], change.due_ms)
                else:
                    self._swap(change)
                self._to_rename.popleft()

    def _swap(self, change: "_Replaced") -> None:
        """Give a cleaned segment's files their final names; `swap_recovery` explains the order."""
        cleaned = change.cleaned
        if not change.is_swapping:
            rename_files(cleaned, SWAP_SUFFIX)
            sync_directory(self._directory)
            change.is_swapping = True
        while change.replaced:
            self._rename(change.replaced[:1], change.due_ms, keep_snapshot_at=cleaned.base_offset)
            change.replaced = change.replaced[1:]
        rename_files(cleaned, "")
        sync_directory(self._directory)

    def has_files_due(self, now_ms: TimestampMs) -> bool:
        return bool(self._to_rename) or any(due_ms <= now_ms for due_ms, _ in self._to_delete)

    def delete_files_due(self, now_ms: TimestampMs) -> int:
        """Rename the files of dropped segments, unlink those whose delay is over; return how many. Blocks.

        Raises:
            OSError: one cannot be renamed or unlinked.
        """
        self.rename_files_due()
        count = 0
        for entry in [entry for entry in self._to_delete if entry[0] <= now_ms]:
            with self._renaming:
                if self._closed:
                    break
                for path in entry[1]:
                    path.unlink(missing_ok=True)
                    count += 1
            self._to_delete.remove(entry)
        return count

    def move_to(self, directory: Path) -> None:
        """Set the directory after a rename. No other thread may use the log."""
        self._directory = directory
        for segment in self.all:
            segment.move_to(directory)
        for change in self._to_rename:
            for segment in change.segments:
                segment.move_to(directory)
        self._to_delete = [
            (due_ms, [directory / path.name for path in paths]) for due_ms, paths in self._to_delete
        ]

    def close(self) -> None:
        """Close every file; nothing is renamed or unlinked afterwards."""
        with self._renaming:
            self._closed = True
        for segment in self.all:
            segment.release()

    def _create(self, base_offset: Offset, config: LogConfig, now_ms: TimestampMs) -> Segment:
        jitter_ms = random.randrange(config.segment_jitter_ms) if config.segment_jitter_ms > 0 else 0
        return Segment.create(
            self._directory,
            base_offset,
            config,
            now_ms=now_ms,
            roll_jitter_ms=min(jitter_ms, config.segment_ms),
        )

    def _use(self, segments: tuple[Segment, ...]) -> None:
        self.all = segments
        self.active = segments[-1]

    def _delete(self, segments: Sequence[Segment], config: LogConfig, now_ms: TimestampMs) -> None:
        self._rename(segments, now_ms + config.file_delete_delay_ms)

    def _rename(
        self,
        segments: Sequence[Segment],
        due_ms: TimestampMs,
        keep_snapshot_at: Offset | None = None,
    ) -> None:
        """Rename the files of unused segments, to be unlinked at `due_ms`."""
        paths: list[Path] = []
        for segment in segments:
            paths += mark_deleted(segment)
            snapshot = offset_file(self._directory, segment.base_offset, PRODUCER_SNAPSHOT_SUFFIX)
            if segment.base_offset != keep_snapshot_at and snapshot.exists():
                paths.append(snapshot.rename(snapshot.with_name(snapshot.name + DELETED_SUFFIX)))
        if paths:
            self._to_delete.append((due_ms, paths))


def number_of(segments: Sequence[Segment], offset: Offset) -> int:
    """Return the index of the segment with `offset`; 0 if it is below all."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def _base_offset(segment: Segment) -> Offset:
    return segment.base_offset
