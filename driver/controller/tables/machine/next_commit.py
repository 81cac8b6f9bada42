"""The next change of a table: the difference between its files and the segments of the manifests.

Pure. A change is made of groups: files of a partition whose offsets overlap leave and come in one commit, so
that no snapshot has a record twice or lacks one that an earlier snapshot had for another reason than
retention. A commit takes at most `MOST_FILES` files, unless one group has more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.driver.controller.tables.machine.events import PartitionedBy, Retention
from sparklog.driver.controller.tables.machine.table_files import TABLES, LiveFile, TableFile, Window
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
    manifest: Manifest,
    files: Iterable[LiveFile],
    retention: Retention,
    wanted: Mapping[str, Window],
    empty: Mapping[str, Window],
) -> PartitionChange | None:
    """Return what the table lacks or has too much of one partition; None for nothing.

    `files` are those of the partition in the newest snapshot. `wanted` are the manifest's windows in their
    order, and `empty` windows have no record; both by their segments.
    """
    by_stem: dict[str, Window] | None = None
    first_offset = next((window.start_offset for window in wanted.values()), None)
    found: set[str] = set()
    removed: list[LiveFile] = []
    for file in files:
        window = wanted.get(file.name)
        if window is not None:
            if not _is_inside(file, window):
                window = None
        elif file.name.startswith(TABLES):
            by_stem = by_stem or {each.piece_stem: each for each in wanted.values()}
            window = _window_of_piece(file, by_stem)
        if window is not None:
            found.add(window.segment.name)
        elif not _is_kept(file, manifest, first_offset, retention):
            removed.append(file)
    missing = [
        window
        for name, window in wanted.items()
        if name not in found and (name not in empty or empty[name] != window)
    ]
    if not missing and not removed:
        return None
    return PartitionChange(manifest.partition, manifest.end_offset, tuple(_groups(missing, removed)))


def without(groups: tuple[Group, ...], window: Window) -> tuple[Group, ...]:
    """Return the groups without a missing window, which has no record."""
    for index, group in enumerate(groups):
        if window in group.missing:
            missing = [each for each in group.missing if each != window]
            return (*groups[:index], *_groups(missing, list(group.removed)), *groups[index + 1 :])
    return groups


def _is_inside(file: LiveFile, window: Window) -> bool:
    return window.start_offset <= file.first_offset and file.last_offset < window.end_offset


def _window_of_piece(file: LiveFile, by_stem: Mapping[str, Window]) -> Window | None:
    stem, dash, _ = file.name.rpartition("/")[2].rpartition("-")
    # The value of a piece may be negative: its dash is then the second one.
    return by_stem.get(stem + dash) or by_stem.get(stem)


def _is_kept(file: LiveFile, manifest: Manifest, first_offset: Offset | None, retention: Retention) -> bool:
    """Return whether a file whose segment the manifest lacks stays: the topic alone has left it.

    `first_offset` is that of the first window; None without one.
    """
    if retention is not Retention.FOREVER or file.last_offset >= manifest.log_start_offset:
        return False
    return first_offset is None or file.last_offset < first_offset


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
    counts: dict[int, int]
    """How many of them, from its first on, are of each partition."""
    end_offsets: dict[int, Offset]


def take(changes: Iterable[PartitionChange], most_files: int) -> Taken:
    """Return the part of the changes that fits into one commit, in the order of partitions and offsets."""
    taken: list[Group] = []
    counts: dict[int, int] = {}
    end_offsets: dict[int, Offset] = {}
    count = 0
    for change in changes:
        end_offset = change.end_offset
        for group in change.groups:
            size = len(group.missing) + len(group.removed)
            if taken and count + size > most_files:
                end_offset = group.start_offset
                break
            taken.append(group)
            counts[change.partition] = counts.get(change.partition, 0) + 1
            count += size
        end_offsets[change.partition] = end_offset
    return Taken(tuple(taken), counts, end_offsets)


def has_same_rows(group: Group, added: Sequence[TableFile]) -> bool:
    """Return whether windows are the files that they replace, merged or written again."""
    if not group.removed or not added:
        return False
    first = min(file.first_offset for file in group.removed)
    last = max(file.last_offset for file in group.removed)
    return first == min(file.first_offset for file in added) and last == max(
        file.last_offset for file in added
    )
