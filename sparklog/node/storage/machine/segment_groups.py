"""Groups of neighbouring segments that a cleaning merges, so that segments do not shrink forever.

Pure. Rules kept, as in Kafka (Cleaner.groupSegmentsBySize): the segments of a group fit one segment, by their
bytes, their indexes, and the distance of their offsets from the first.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sparklog.protocol.types import Offset

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class SealedSegment(NamedTuple):
    """A segment that is no longer appended to."""

    base_offset: Offset
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SealedSegment], end_offset: Offset, *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SealedSegment]]:
    """Return the segments, of which the last ends at `end_offset`, in groups.

    >>> small = [SealedSegment(offset, 40, 8, 12) for offset in (0, 10, 20)]
    >>> [len(group) for group in group_segments(small, 30, segment_bytes=100, segment_index_bytes=1000)]
    [2, 1]
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    groups: list[list[SealedSegment]] = []
    size_bytes = offset_index_bytes = time_index_bytes = 0
    for segment, segment_end in zip(segments, ends, strict=True):
        size_bytes += segment.size_bytes
        offset_index_bytes += segment.offset_index_bytes
        time_index_bytes += segment.time_index_bytes
        if (
            groups
            and size_bytes <= segment_bytes
            and max(offset_index_bytes, time_index_bytes) <= segment_index_bytes
            and segment_end - 1 - groups[-1][0].base_offset <= _MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
            offset_index_bytes, time_index_bytes = segment.offset_index_bytes, segment.time_index_bytes
    return groups
