"""The footer of a remote segment: where its row groups are, and which offsets and times they have.

A footer is small, about 1 KB for 8 MiB of records, and never changes: readers keep it. It is at the end of
the object, so one ranged read gets it, or two if it is longer than expected.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.node.remote_log.object_store import CorruptSegmentError, ObjectStore
from sparklog.node.remote_log.segments.file_ranges import range_of
from sparklog.node.remote_log.segments.segment_format import COLUMNS, RECORD_LEAVES, US_PER_MS, check_format
from sparklog.protocol.types import Offset, TimestampMs

_MAGIC: Final = b"PAR1"
_TRAILER_BYTES: Final = 8
"""The footer's length, and the magic."""
_USUAL_BYTES: Final = 64 * 1024
_SIZE_PER_FOOTER_BYTE: Final = 4096
READ_WHOLE_BYTES: Final = 512 * 1024
"""An object up to this size is read as a whole: more bytes cost less time and money than a second request."""


class RowGroup(NamedTuple):
    first_offset: Offset
    last_offset: Offset
    """Inclusive."""
    first_timestamp_ms: TimestampMs
    """The smallest."""
    max_timestamp_ms: TimestampMs
    start: int
    end: int
    """Its bytes in the object, without typed columns: [start, end)."""
    record_count: int
    raw_bytes: int
    """Uncompressed."""

    def overlaps(self, start_offset: Offset, end_offset: Offset) -> bool:
        return start_offset <= self.last_offset and self.first_offset < end_offset


class SegmentFooter:
    def __init__(self, name: str, data: bytes, row_groups: tuple[RowGroup, ...]) -> None:
        """`data` are the footer's bytes, with which the object ends."""
        self.name: Final = name
        self.data: Final = data
        self.row_groups: Final = row_groups
        self._last_offsets: Final = [each.last_offset for each in row_groups]

    @classmethod
    def parse(cls, tail: bytes, name: str) -> "SegmentFooter":
        """Return the footer at the end of `tail`, an object's last bytes.

        Raises:
            CorruptSegmentError: it is not a segment's, or begins before `tail`.
        """
        needed_bytes = footer_bytes(tail, name)
        if needed_bytes > len(tail):
            raise CorruptSegmentError(f"{name}: its footer has {needed_bytes} bytes, {len(tail)} are there")
        try:
            metadata = pq.read_metadata(pa.BufferReader(tail))
        except (pa.ArrowException, OSError) as error:
            raise CorruptSegmentError(f"{name}: its footer cannot be read: {error}") from error
        check_format(metadata.metadata, name)
        groups = tuple(
            _row_group(metadata.row_group(number), name) for number in range(metadata.num_row_groups)
        )
        footer = cls(name, tail[-needed_bytes:], groups)
        footer.metadata = metadata
        return footer

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        return pq.read_metadata(pa.BufferReader(self.data))

    @property
    def memory_bytes(self) -> int:
        """About what a cached footer takes."""
        return 4 * len(self.data)

    def check_records(self, record_count: int) -> None:
        """Check that the row groups have so many records, in the order of their offsets.

        Readers of some columns decode no offsets, so that nothing else would notice another object's footer.

        Raises:
            CorruptSegmentError.
        """
        found = sum(each.record_count for each in self.row_groups)
        if found != record_count:
            raise CorruptSegmentError(f"{self.name} has {found} records, in its manifest are {record_count}")
        for one, other in pairwise(self.row_groups):
            if other.first_offset <= one.last_offset:
                raise CorruptSegmentError(
                    f"{self.name}: a row group that begins at offset {other.first_offset} follows one that "
                    f"ends at {one.last_offset}"
                )

    def groups_within(self, start_offset: Offset, end_offset: Offset) -> Iterator[int]:
        """Yield the numbers of the row groups that may have records of [start_offset, end_offset)."""
        for number, group in enumerate(self.row_groups):
            if group.overlaps(start_offset, end_offset):
                yield number

    def group_with(self, offset: Offset) -> int | None:
        """Return the number of the row group with the first record at or after `offset`; None for none."""
        number = bisect_left(self._last_offsets, offset)
        return number if number < len(self.row_groups) else None


def footer_bytes(tail: bytes, name: str) -> int:
    """Return how many of an object's last bytes are its footer.

    Raises:
        CorruptSegmentError: they do not end as Parquet does.
    """
    if len(tail) < _TRAILER_BYTES or tail[-4:] != _MAGIC:
        raise CorruptSegmentError(f"{name} does not end as a Parquet file")
    return int.from_bytes(tail[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES


class SegmentTail(NamedTuple):
    """The last bytes of an object: its footer, and row groups as far as they lie in them, too."""

    data: bytes
    start: int
    """Of the object."""

    def row_group(self, group: RowGroup) -> bytes | None:
        """Return the bytes of a row group; None if not all are here."""
        return self.part(group.start, group.end)

    def part(self, start: int, end: int) -> bytes | None:
        """Return the bytes [start, end) of the object; None if not all are here."""
        return None if start < self.start else self.data[start - self.start : end - self.start]


async def read_tail(store: ObjectStore, name: str, size_bytes: int) -> SegmentTail:
    """Return the end of an object of this size, as its manifest says: a small object as a whole.

    Raises:
        CorruptSegmentError: the object is no segment, or has another size.
        ObjectMissingError, StoreRefusedError, StoreUnavailableError: as the store raises them.
    """
    length = min(size_bytes, _USUAL_BYTES + size_bytes // _SIZE_PER_FOOTER_BYTE)
    if size_bytes <= READ_WHOLE_BYTES:
        length = size_bytes
    if length < _TRAILER_BYTES:
        raise CorruptSegmentError(f"{name} is in its manifest with {size_bytes} bytes, too few for a segment")
    tail = await store.get_range(name, size_bytes - length, size_bytes)
    needed_bytes = footer_bytes(tail, name)
    if needed_bytes > size_bytes:
        raise CorruptSegmentError(f"{name}: its footer would have {needed_bytes} of {size_bytes} bytes")
    if needed_bytes > length:
        tail = await store.get_range(name, size_bytes - needed_bytes, size_bytes - length) + tail
    return SegmentTail(tail, size_bytes - len(tail))


class OpenedSegment(NamedTuple):
    """A segment whose row groups are read one after the other, by as few requests as it takes."""

    store: ObjectStore
    footer: SegmentFooter
    tail: SegmentTail

    async def row_group(self, index: int) -> bytes:
        """Return the bytes of a row group.

        Raises:
            ObjectMissingError, StoreRefusedError, StoreUnavailableError: as the store raises them.
        """
        group = self.footer.row_groups[index]
        return await self.part(group.start, group.end)

    async def part(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of the object; raise as `row_group`."""
        data = self.tail.part(start, end)
        return data or await self.store.get_range(self.footer.name, start, end)


async def open_segment(store: ObjectStore, name: str, size_bytes: int) -> OpenedSegment:
    """Read the footer of an object of this size; raise as `read_tail`."""
    tail = await read_tail(store, name, size_bytes)
    return OpenedSegment(store, SegmentFooter.parse(tail.data, name), tail)


def _row_group(metadata: pq.RowGroupMetaData, name: str) -> RowGroup:
    # Typed columns stand behind these.
    columns = [metadata.column(number) for number in range(RECORD_LEAVES)]
    ranges = [range_of(column) for column in columns]
    offsets = columns[COLUMNS.index("offset")].statistics
    timestamps = columns[COLUMNS.index("timestamp")].statistics
    if not (offsets and timestamps and offsets.has_min_max and timestamps.has_min_max):
        raise CorruptSegmentError(f"{name}: a row group has no statistics of offsets and timestamps")
    return RowGroup(
        first_offset=offsets.min_raw,
        last_offset=offsets.max_raw,
        first_timestamp_ms=timestamps.min_raw // US_PER_MS,
        max_timestamp_ms=timestamps.max_raw // US_PER_MS,
        start=min(each.start for each in ranges),
        end=max(each.end for each in ranges),
        record_count=metadata.num_rows,
        raw_bytes=sum(column.total_uncompressed_size for column in columns),
    )
