"""Splitting of offset ranges into tasks: pure arithmetic, the same input always gives the same splits.

Ranges count offsets, not records: a compacted or transactional log has fewer records than offsets, so sizes
are estimates there, while the bounds stay exact.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparklog.protocol.types import Offset, TopicPartition


class OffsetRange(NamedTuple):
    """The offsets [start_offset, end_offset) of one partition."""

    topic_partition: TopicPartition
    start_offset: Offset
    end_offset: Offset

    @property
    def size(self) -> int:
        """Number of offsets in the range; it has at most as many records."""
        return self.end_offset - self.start_offset


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Return the ranges for one task each, ordered by partition and offset.

    Without options each partition is one task. `max_records_per_partition` cuts larger ranges into equal
    parts no larger than that. If there are then fewer tasks than `min_partitions`, the larger ranges are cut
    further, in proportion to their size, into about that many. Empty ranges are dropped.

    >>> split_ranges([OffsetRange(TopicPartition("t", 0), 0, 10)], max_records_per_partition=4)
    ... # doctest: +NORMALIZE_WHITESPACE
    [OffsetRange(topic_partition=TopicPartition(topic='t', partition=0), start_offset=0, end_offset=3),
     OffsetRange(topic_partition=TopicPartition(topic='t', partition=0), start_offset=3, end_offset=6),
     OffsetRange(topic_partition=TopicPartition(topic='t', partition=0), start_offset=6, end_offset=10)]
    """
    splits = sorted(each for each in ranges if each.size > 0)
    if max_records_per_partition is not None:
        splits = [
            part for each in splits for part in _divided(each, -(-each.size // max_records_per_partition))
        ]
    if min_partitions is None or len(splits) >= min_partitions:
        return splits
    return [
        part
        for each, parts in zip(splits, _part_counts([s.size for s in splits], min_partitions), strict=True)
        for part in _divided(each, parts)
    ]


def _part_counts(sizes: list[int], wanted: int) -> list[int]:
    """Distribute `wanted` parts in proportion; ranges too small for two parts do not dilute the others."""
    total = sum(sizes)
    whole = [_share(size, total, wanted) == 1 for size in sizes]
    divisible_total = sum(size for size, is_whole in zip(sizes, whole, strict=True) if not is_whole)
    divisible_wanted = max(wanted - sum(whole), 1)
    return [
        1 if is_whole else _share(size, divisible_total, divisible_wanted)
        for size, is_whole in zip(sizes, whole, strict=True)
    ]


def _share(size: int, total: int, wanted: int) -> int:
    """`wanted` times `size` over `total`, rounded half up, at least 1."""
    return max((2 * size * wanted + total) // (2 * total), 1)


def _divided(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Cut a range into parts that differ by at most one offset; a range is never cut below one offset."""
    parts = min(parts, whole.size)
    start = whole.start_offset
    for part in range(parts):
        end = start + (whole.end_offset - start) // (parts - part)
        yield OffsetRange(whole.topic_partition, start, end)
        start = end
