"""The next change of a table: the difference between its files and the segments of the manifests.

Pure. A change is made of groups: files of a partition whose offsets overlap leave and come in one commit, so
that no snapshot has a record twice or lacks one that an earlier snapshot had for another reason than
retention. A commit takes at most `MOST_FILES` files, unless one group has more.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.driver.controller.tables.machine.events import PartitionedBy, Retention
from sparklog.driver.controller.tables.machine.table_files import LiveFile, TableFile, Window
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.protocol.types import Offset, TimestampMs

MOST_FILES: Final = 500
_HOUR_MS: Final = 60 * 60 * 1000
_DAY_MS: Final = 24 * _HOUR_MS


def partition_unit_ms(partitioned_by: PartitionedBy) -> int | None:
    """Return by how many milliseconds of the timestamp records are apart in the table; None for none.

    Days and hours count from 1970, as in Iceberg's transforms.
    """
    match partitioned_by:
        case PartitionedBy.DAY:
            return _DAY_MS
        case PartitionedBy.HOUR:
            return _HOUR_MS
        case PartitionedBy.NONE | PartitionedBy.PARTITION:
            return None


def partition_value(partitioned_by: PartitionedBy, timestamp_ms: TimestampMs) -> int:
    """Return the day or hour of a timestamp; 0 where records of all times are together.

    >>> partition_value(PartitionedBy.DAY, -1)
    -1
    """
    unit_ms = partition_unit_ms(partitioned_by)
    return 0 if unit_ms is None else timestamp_ms // unit_ms


def is_whole(window: Window, file: TableFile, partitioned_by: PartitionedBy) -> bool:
    """Return whether all records of a segment count, in one partition of the table."""
    if file.first_offset < window.start_offset or file.last_offset >= window.end_offset:
        return False
    first, last = (
        partition_value(partitioned_by, timestamp_ms)
        for timestamp_ms in (file.first_timestamp_ms, file.max_timestamp_ms)
    )
    return first == last


def windows(manifest: Manifest, retention: Retention) -> list[Window]:
    """Return the segments of a manifest with the offsets that count for the table.

    Records below the log start leave the table with the topic's; a table that keeps them has the segment as
    it is.
    """
    start_offset = 0 if retention is Retention.FOREVER else manifest.log_start_offset
    return [
        Window(segment, manifest.partition, max(segment.base_offset, start_offset), segment.end_offset)
        for segment in manifest.segments
        if segment.end_offset > start_offset
    ]


class Group(NamedTuple):
    """Files that leave and come at once, and the first offset of all."""

    start_offset: Offset
    missing: tuple[Window, ...]
    """Windows of which the table has no file."""
    removed: tuple[LiveFile, ...]


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """The difference of one partition, in the order of offsets."""

    partition: int
    end_offset: Offset
    """Of the manifest."""
    groups: tuple[Group, ...]


def partition_change(
    manifest: Manifest, files: Iterable[LiveFile], retention: Retention, empty: Container[Window] = ()
) -> PartitionChange | None:
    """Return what the table lacks or has too much of one partition; None for nothing.

    `files` are those of the partition in the newest snapshot; `empty` windows have no record.
    """
    wanted = windows(manifest, retention)
    by_name = {window.segment.name: window for window in wanted}
    by_stem = {window.piece_stem: window for window in wanted}
    found: set[Window] = set()
    removed: list[LiveFile] = []
    for file in files:
        window = _window_of(file, by_name, by_stem)
        if window is not None:
            found.add(window)
        elif not _is_kept(file, manifest, wanted, retention):
            removed.append(file)
    missing = [window for window in wanted if window not in found and window not in empty]
    if not missing and not removed:
        return None
    return PartitionChange(manifest.partition, manifest.end_offset, tuple(_groups(missing, removed)))


def _window_of(file: LiveFile, by_name: Mapping[str, Window], by_stem: Mapping[str, Window]) -> Window | None:
    window = by_name.get(file.name)
    if window is not None:
        is_inside = window.start_offset <= file.first_offset and file.last_offset < window.end_offset
        return window if is_inside else None
    stem, dash, _ = file.name.rpartition("/")[2].rpartition("-")
    # The value of a piece may be negative: its dash is then the second one.
    return by_stem.get(stem + dash) or by_stem.get(stem)


def _is_kept(file: LiveFile, manifest: Manifest, wanted: list[Window], retention: Retention) -> bool:
    """Return whether a file whose segment the manifest lacks stays: the topic alone has left it."""
    if retention is not Retention.FOREVER or file.last_offset >= manifest.log_start_offset:
        return False
    return not wanted or file.last_offset < wanted[0].start_offset


def _groups(missing: list[Window], removed: list[LiveFile]) -> Iterable[Group]:
    """Yield the connected parts of windows and files by their offsets."""
    ranges: list[tuple[Offset, Offset, Window | LiveFile]] = [
        *((each.start_offset, each.end_offset, each) for each in missing),
        *((each.first_offset, each.last_offset + 1, each) for each in removed),
    ]
    ranges.sort(key=lambda each: each[:2])
    start_offset = end_offset = -1
    parts: list[Window | LiveFile] = []
    for start, end, part in ranges:
        if parts and start >= end_offset:
            yield _group(start_offset, parts)
            parts = []
        if not parts:
            start_offset, end_offset = start, end
        end_offset = max(end_offset, end)
        parts.append(part)
    if parts:
        yield _group(start_offset, parts)


def _group(start_offset: Offset, parts: list[Window | LiveFile]) -> Group:
    return Group(
        start_offset,
        tuple(each for each in parts if isinstance(each, Window)),
        tuple(each for each in parts if isinstance(each, LiveFile)),
    )


class Taken(NamedTuple):
    """The groups that the next commit takes, and the ends of what the table has after it."""

    groups: tuple[Group, ...]
    end_offsets: dict[int, Offset]
    is_all: bool


def take(changes: Iterable[PartitionChange], most_files: int) -> Taken:
    """Return the part of the changes that fits into one commit, in the order of partitions and offsets."""
    taken: list[Group] = []
    end_offsets: dict[int, Offset] = {}
    count = 0
    is_all = True
    for change in changes:
        end_offset = change.end_offset
        for group in change.groups:
            size = len(group.missing) + len(group.removed)
            if taken and count + size > most_files:
                end_offset = group.start_offset
                is_all = False
                break
            taken.append(group)
            count += size
        end_offsets[change.partition] = end_offset
    return Taken(tuple(taken), end_offsets, is_all)
