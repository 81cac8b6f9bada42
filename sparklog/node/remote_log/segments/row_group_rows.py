"""The rows of one row group, read from its bytes alone and the segment's footer."""

import io
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.remote_log.segments.segment_format import COLUMNS
from sparklog.protocol.types import Offset


def row_group_rows(
    data: bytes | memoryview,
    footer: SegmentFooter,
    index: int,
    *,
    start_offset: Offset,
    end_offset: Offset,
) -> pa.Table:
    """Return the records of [start_offset, end_offset) in a row group, of whose bytes `data` is all.

    Raises:
        CorruptSegmentError: the bytes are not the row group's, or damaged.
    """
    group = footer.row_groups[index]
    if len(data) != group.end - group.start:
        raise CorruptSegmentError(
            f"{footer.name}: row group {index} has {group.end - group.start} bytes, {len(data)} are there"
        )
    try:
        file = pq.ParquetFile(
            pa.PythonFile(_Piece(data, group.start), mode="r"),
            metadata=footer.metadata,
            page_checksum_verification=True,
        )
        rows = file.read_row_group(index, columns=list(COLUMNS), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise CorruptSegmentError(f"{footer.name}: row group {index} cannot be read: {error}") from error
    if start_offset <= group.first_offset and group.last_offset < end_offset:
        return rows
    offsets = rows.column("offset").to_numpy()
    start, end = offsets.searchsorted([start_offset, end_offset])
    return rows.slice(start, end - start)


class _Piece(io.RawIOBase):
    """Bytes of a file from a position on, read by their positions in the file."""

    def __init__(self, data: bytes | memoryview, start: int) -> None:
        self._data: Final = memoryview(data)
        self._start: Final = start
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        match whence:
            case io.SEEK_SET:
                self._position = offset
            case io.SEEK_CUR:
                self._position += offset
            case _:
                self._position = self._start + len(self._data) + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position - self._start
        if start < 0:
            raise OSError(f"byte {self._position} is before the row group, which begins at {self._start}")
        piece = bytes(self._data[start:] if size < 0 else self._data[start : start + size])
        self._position += len(piece)
        return piece
