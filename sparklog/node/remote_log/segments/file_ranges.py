"""Parts of a Parquet file that were read from a store, as a file for Arrow."""

import io
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow.parquet as pq


class ByteRange(NamedTuple):
    start: int
    end: int


def range_of(chunk: pq.ColumnChunkMetaData) -> ByteRange:
    """Return the bytes of a column chunk in its file."""
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return ByteRange(start, start + chunk.total_compressed_size)


class FileRanges(io.RawIOBase):
    """Ranges of a file, read by their positions in the file; a read ends at the end of its range."""

    def __init__(self, ranges: Sequence[ByteRange], data: Sequence[bytes | memoryview]) -> None:
        """`data` has the bytes of each range; they are not copied."""
        self._ranges: Final = ranges
        self._data: Final = data
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
                self._position = (self._ranges[-1].end if self._ranges else 0) + offset
        return self._position

    def read(self, size: int = -1) -> memoryview:
        for (start, end), data in zip(self._ranges, self._data, strict=True):
            if start <= self._position < end:
                first = self._position - start
                piece = memoryview(data)[first : len(data) if size < 0 else first + size]
                self._position += len(piece)
                return piece
        raise OSError(f"byte {self._position} is in none of the ranges that were read")
