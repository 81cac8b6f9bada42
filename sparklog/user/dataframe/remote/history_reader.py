"""The rows of a history, read from the object store a few row groups ahead of their consumer.

The producer of a pipeline reads the footer of each segment, then the bytes of the columns, and the footer of
the next segment beside these. Order is that of offsets. The consumer decodes in its own thread.

The column chunks of row groups: which bytes of a remote segment hold some columns, and their rows.

A query that needs one column reads its bytes alone. Chunks that lie close together are read by one request.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.node.remote_log.object_store import CorruptSegmentError, ObjectStore
from sparklog.node.remote_log.segments.file_ranges import ByteRange, FileRanges, range_of
from sparklog.node.remote_log.segments.segment_footer import OpenedSegment, SegmentFooter, open_segment
from sparklog.protocol.types import Offset
from sparklog.user.dataframe.remote.history import History, RemotePiece
from sparklog.user.dataframe.remote.store_thread import StoreThread

_GAP_BYTES: Final = 256 * 1024
"""Bytes between two chunks that are read in vain rather than send another request."""
_UNIT_BYTES: Final = 4 * 1024 * 1024
"""Of the columns of consecutive row groups that are read together, uncompressed."""
_UNIT_ROWS: Final = 256 * 1024


class ColumnChunks(NamedTuple):
    row_groups: tuple[int, ...]
    ranges: tuple[ByteRange, ...]
    """In the order of the object; they do not overlap."""

    @property
    def size_bytes(self) -> int:
        """The bytes that are read."""
        return sum(each.end - each.start for each in self.ranges)


def chunks_of(
    footer: SegmentFooter, row_groups: Sequence[int], columns: frozenset[str]
) -> Iterator[ColumnChunks]:
    """Yield the chunks of `columns`, several row groups at a time where these are small."""
    numbers: list[int] = []
    ranges: list[ByteRange] = []
    raw_bytes = rows = 0
    for number in row_groups:
        group = footer.metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.path_in_schema.split(".", 1)[0] in columns:
                ranges.append(range_of(chunk))
                raw_bytes += chunk.total_uncompressed_size
        numbers.append(number)
        rows += group.num_rows
        if raw_bytes >= _UNIT_BYTES or rows >= _UNIT_ROWS:
            yield ColumnChunks(tuple(numbers), _merged(ranges))
            numbers, ranges, raw_bytes, rows = [], [], 0, 0
    if numbers:
        yield ColumnChunks(tuple(numbers), _merged(ranges))


def _merged(ranges: list[ByteRange]) -> tuple[ByteRange, ...]:
    merged: list[ByteRange] = []
    for each in sorted(ranges):
        if merged and each.start - merged[-1].end <= _GAP_BYTES:
            merged[-1] = ByteRange(merged[-1].start, max(each.end, merged[-1].end))
        else:
            merged.append(each)
    return tuple(merged)


def read_rows(
    footer: SegmentFooter,
    chunks: ColumnChunks,
    data: Sequence[bytes],
    columns: Sequence[str],
    *,
    check_crcs: bool,
) -> pa.Table:
    """Return the rows of the row groups; `data` has the bytes of each range.

    Raises:
        CorruptSegmentError: the bytes are damaged.
    """
    try:
        file = pq.ParquetFile(
            pa.PythonFile(FileRanges(chunks.ranges, data), mode="r"),
            metadata=footer.metadata,
            page_checksum_verification=check_crcs,
        )
        return file.read_row_groups(list(chunks.row_groups), columns=list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSegmentError(
            f"{footer.name}: row groups {chunks.row_groups[0]} to {chunks.row_groups[-1]} cannot be read: "
            f"{error}"
        ) from error


_AHEAD: Final = 3
"""Units of row groups that are read, or being read, before their consumer asks."""
_AHEAD_BYTES: Final = 32 * 1024 * 1024
"""Of these units, unless one alone has more: a record may be as large as a row group is else."""
_REQUESTS: Final = 16
"""Reads of one task that are under way at a time."""
_OFFSET: Final = "offset"


class HistoryRows(NamedTuple):
    columns: pa.Table
    """Those of the segment that were asked for, and maybe `offset`, in an order of their own."""
    row_count: int
    next_offset: Offset
    """All records of the history below it have been given."""


class _Loaded(NamedTuple):
    piece: RemotePiece
    footer: SegmentFooter
    chunks: ColumnChunks
    columns: tuple[str, ...]
    data: Sequence[bytes]


def history_rows(
    store: StoreThread, history: History, columns: Sequence[str], *, check_crcs: bool
) -> Iterator[HistoryRows]:
    """Yield the columns of a history, in order.

    Raises:
        ObjectMissingError: an object is gone.
        CorruptSegmentError, StoreRefusedError, StoreUnavailableError: it could not be read.
    """
    reads = _Reads(store.store, history.pieces, frozenset(columns))
    try:
        while (loaded := store.read(reads.next())) is not None:
            yield _decoded(loaded, check_crcs=check_crcs)
    finally:
        store.run(reads.close())


def _decoded(loaded: _Loaded, *, check_crcs: bool) -> HistoryRows:
    piece, footer, chunks, columns, data = loaded
    groups = [footer.row_groups[number] for number in chunks.row_groups]
    next_offset = _next_offset(loaded)
    if not columns:
        return HistoryRows(pa.table({}), sum(each.record_count for each in groups), next_offset)
    rows = read_rows(footer, chunks, data, columns, check_crcs=check_crcs)
    if not (piece.start_offset <= groups[0].first_offset and groups[-1].last_offset < piece.end_offset):
        offsets = rows.column(_OFFSET).to_numpy()
        first, end = offsets.searchsorted([piece.start_offset, piece.end_offset])
        rows = rows.slice(first, end - first)
    return HistoryRows(rows, rows.num_rows, next_offset)


def _next_offset(loaded: _Loaded) -> Offset:
    """Return the end of a unit: of a piece's last one that of the piece, where markers may follow records."""
    number = loaded.chunks.row_groups[-1]
    groups, end_offset = loaded.footer.row_groups, loaded.piece.end_offset
    is_last = number + 1 == len(groups) or groups[number + 1].first_offset >= end_offset
    return end_offset if is_last else groups[number].last_offset + 1


class _Reads:
    """The reads of one history. Belongs to the loop of its store."""

    def __init__(self, store: ObjectStore, pieces: Sequence[RemotePiece], columns: frozenset[str]) -> None:
        self._store: Final = store
        self._pieces: Final = pieces
        self._columns: Final = columns
        self._turns: Final = asyncio.Semaphore(_REQUESTS)
        self._tasks: Final[set[asyncio.Task[Any]]] = set()
        self._units: asyncio.Queue[asyncio.Future[_Loaded] | None] | None = None
        self._ahead_bytes = 0
        self._taken: Final = asyncio.Event()

    async def next(self) -> _Loaded | None:
        """Return the next unit; None at the end."""
        if self._units is None:
            self._units = asyncio.Queue(_AHEAD)
            self._begin(self._produce(self._units))
        unit = await self._units.get()
        if unit is None:
            return None
        loaded = await unit
        self._ahead_bytes -= loaded.chunks.size_bytes
        self._taken.set()
        return loaded

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # or asyncio would log the failure of a unit that is not asked for any more

    async def _produce(self, units: "asyncio.Queue[asyncio.Future[_Loaded] | None]") -> None:
        try:
            segments = [self._begin(self._opened(each)) for each in self._pieces[:1]]
            for number, piece in enumerate(self._pieces):
                segments += [
                    self._begin(self._opened(each)) for each in self._pieces[number + 1 : number + 2]
                ]
                segment = await segments.pop(0)
                for columns, chunks in self._chunks(segment.footer, piece):
                    await self._room(chunks.size_bytes)
                    await units.put(self._begin(self._load(piece, segment, columns, chunks)))
            await units.put(None)
        except Exception as error:  # of any kind: the consumer must not wait for more
            await units.put(self._begin(_failed(error)))

    async def _room(self, size_bytes: int) -> None:
        """Wait until so many bytes may be read ahead, and count them."""
        while self._ahead_bytes and self._ahead_bytes + size_bytes > _AHEAD_BYTES:
            self._taken.clear()
            await self._taken.wait()
        self._ahead_bytes += size_bytes

    def _chunks(
        self, footer: SegmentFooter, piece: RemotePiece
    ) -> Iterator[tuple[tuple[str, ...], ColumnChunks]]:
        """Yield what to read; of groups that are not wholly in the piece with the offsets, to cut them."""
        start, end = piece.start_offset, piece.end_offset
        overlapping = list(footer.groups_within(start, end))
        groups = footer.row_groups
        whole = [
            number
            for number in overlapping
            if start <= groups[number].first_offset and groups[number].last_offset < end
        ]
        first = [number for number in overlapping[:1] if number not in whole]
        last = [number for number in overlapping[1:][-1:] if number not in whole]
        cut_columns = self._columns | {_OFFSET}
        for columns, numbers in ((cut_columns, first), (self._columns, whole), (cut_columns, last)):
            for chunks in chunks_of(footer, numbers, columns):
                yield tuple(sorted(columns)), chunks

    async def _opened(self, piece: RemotePiece) -> OpenedSegment:
        segment = await open_segment(self._store, piece.name, piece.size_bytes)
        segment.footer.check_records(piece.record_count)
        return segment

    async def _load(
        self, piece: RemotePiece, segment: OpenedSegment, columns: tuple[str, ...], chunks: ColumnChunks
    ) -> _Loaded:
        data = await asyncio.gather(*(self._range(segment, each) for each in chunks.ranges))
        return _Loaded(piece, segment.footer, chunks, columns, data)

    async def _range(self, segment: OpenedSegment, wanted: ByteRange) -> bytes:
        async with self._turns:
            return await segment.part(wanted.start, wanted.end)


async def _failed(error: Exception) -> _Loaded:
    raise error
