"""Writing a remote segment to a local file, row group by row group.

Memory is bounded by a row group: `ROW_GROUP_BYTES`, unless one record alone has more. One ranged read of a
row group serves a fetch. The caller uploads the file; no fsync, since after a crash it is written again.
"""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, Self
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from sparklog.node.remote_log.segments.segment_format import (
    SCHEMA,
    US_PER_MS,
    segment_metadata,
    segment_schema,
)
from sparklog.node.remote_log.segments.typed_columns import TypedColumns
from sparklog.protocol.records.numpy_arrays import int64s_of, nulls_of, numbers_of
from sparklog.protocol.records.varint_columns import Int64s
from sparklog.protocol.types import Offset, TimestampMs

ROW_GROUP_BYTES: Final = 8 * 1024 * 1024
"""Size of a row group's records in batches, uncompressed."""
_RECORD_OVERHEAD_BYTES: Final = 10
"""Bytes of a record besides key, value and headers: lengths, deltas, attributes; to a byte."""
_HEADER_OVERHEAD_BYTES: Final = 2
_ZSTD_LEVEL: Final = 1
_VALUE: Final = SCHEMA.get_field_index("value")
_VIEWED: Final = SCHEMA.set(_VALUE, SCHEMA.field("value").with_type(pa.binary_view()))
"""The columns as they are written: a long value is copied from its batch to its page, and not on the way."""


class WrittenSegment(NamedTuple):
    """A segment's figures for its manifest. Without records it is not worth an object."""

    record_count: int
    size_bytes: int
    raw_bytes: int
    """Size of its records in batches, uncompressed: an estimate to a byte or two a record."""
    first_offset: Offset | None
    last_offset: Offset | None
    """Inclusive; None without records."""
    first_timestamp_ms: TimestampMs
    """The smallest; -1 without records."""
    max_timestamp_ms: TimestampMs
    crc32c: int
    unparsed_count: int = 0
    """Values without typed columns, since they do not parse."""


def write_segment(
    rows: Iterable[pa.RecordBatch],
    path: Path,
    *,
    topic: str,
    topic_id: UUID,
    partition: int,
    typed: TypedColumns | None = None,
) -> WrittenSegment:
    """Write records, with the columns of `segment_format` and rising offsets, to a new file.

    Blocks. A failure removes the file and is raised as it is.

    Raises:
        FileExistsError: `path` exists.
        ValueError: an offset is not above the one before it.
    """
    with SegmentWriter.open(path, topic=topic, topic_id=topic_id, partition=partition, typed=typed) as writer:
        for batch in rows:
            writer.write(batch)
        return writer.finish()


class SegmentWriter:
    """A segment that is written step by step: `write` rows, then `finish`; without that its file goes."""

    def __init__(
        self, file: BinaryIO, path: Path, metadata: dict[str, str], typed: TypedColumns | None = None
    ) -> None:
        self._file: Final = file
        self._path: Final = path
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._typed: Final = typed
        self._schema: Final = pa.schema([*_VIEWED, *list(segment_schema(typed))[len(_VIEWED) :]])
        self._written = WrittenSegment(0, 0, 0, None, None, -1, -1, 0)
        self._is_finished = False
        self._sink: Final = _ChecksummedFile(file)
        self._parquet: Final = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=["partition", "timestampType", *([] if typed is None else typed.paths)],
            column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
            write_statistics=["offset", "timestamp", *([] if typed is None else typed.scalar_names)],
            store_decimal_as_integer=True,
            write_page_checksum=True,
            store_schema=False,
        )
        self._parquet.add_key_value_metadata(metadata)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        topic: str,
        topic_id: UUID,
        partition: int,
        typed: TypedColumns | None = None,
    ) -> Self:
        """Create the file.

        Raises:
            FileExistsError: it exists.
        """
        return cls(path.open("xb"), path, segment_metadata(topic, topic_id, partition, typed), typed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_finished:
            self._parquet.is_open = False  # pyarrow would write the footer at the writer's end
            self._path.unlink(missing_ok=True)
        self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows behind those before them.

        Raises:
            ValueError: their offsets are not above those before them.
        """
        if batch.num_rows == 0:
            return
        rows = batch.select(_VIEWED.names).cast(_VIEWED)
        sizes = np.cumsum(row_bytes(rows))
        self._account(rows, int(sizes[-1]))
        start = written_bytes = 0
        while start < len(sizes):
            room = ROW_GROUP_BYTES - self._pending_bytes
            end = int(sizes.searchsorted(written_bytes + room, side="right"))
            if end == start and not self._pending:
                end += 1
            if end > start:
                self._pending.append(rows.slice(start, end - start))
                self._pending_bytes += int(sizes[end - 1]) - written_bytes
                start, written_bytes = end, int(sizes[end - 1])
            if start < len(sizes):
                self._write_row_group()

    def finish(self) -> WrittenSegment:
        """Write the footer, and return the figures of the whole."""
        self._write_row_group()
        self._parquet.close()
        self._file.flush()
        self._is_finished = True
        return self._written._replace(size_bytes=self._sink.size_bytes, crc32c=self._sink.crc)

    def _account(self, rows: pa.RecordBatch, size_bytes: int) -> None:
        offsets = numbers_of(rows.column("offset"))
        before = self._written
        first, last = int(offsets[0]), int(offsets[-1])
        if (np.diff(offsets) <= 0).any() or (before.last_offset is not None and first <= before.last_offset):
            raise ValueError(
                f"{self._path.name}: offsets do not rise: {first} to {last} follow {before.last_offset}"
            )
        timestamps = numbers_of(rows.column("timestamp"))
        smallest, largest = (int(each) // US_PER_MS for each in (timestamps.min(), timestamps.max()))
        is_first = before.first_offset is None
        self._written = before._replace(
            record_count=before.record_count + len(offsets),
            raw_bytes=before.raw_bytes + size_bytes,
            first_offset=first if is_first else before.first_offset,
            last_offset=last,
            first_timestamp_ms=smallest if is_first else min(smallest, before.first_timestamp_ms),
            max_timestamp_ms=largest if is_first else max(largest, before.max_timestamp_ms),
        )

    def _write_row_group(self) -> None:
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, _VIEWED)
        if self._typed is not None:
            parsed = self._typed.parse(table.column("value").cast(pa.binary()).combine_chunks())
            table = pa.Table.from_arrays([*table.columns, *parsed.columns], schema=self._schema)
            unparsed_count = self._written.unparsed_count + parsed.failed_count
            self._written = self._written._replace(unparsed_count=unparsed_count)
        self._parquet.write_table(table, row_group_size=table.num_rows)
        self._pending, self._pending_bytes = [], 0


def row_bytes(rows: pa.RecordBatch) -> Int64s:
    """Return about how many bytes each record has in a batch."""
    sizes = np.full(rows.num_rows, _RECORD_OVERHEAD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        sizes += _lengths(rows.column(name))
    headers = rows.column("headers")
    if headers.null_count < len(headers):
        keys, values = headers.flatten().flatten()
        of_headers = _lengths(keys) + _lengths(values) + _HEADER_OVERHEAD_BYTES
        before = np.zeros(len(of_headers) + 1, dtype=np.int64)
        np.cumsum(of_headers, out=before[1:])
        counts = int64s_of(pc.list_value_length(headers))
        ends = np.cumsum(counts)
        sizes += before[ends] - before[ends - counts]
    return sizes


def _lengths(column: pa.Array) -> Int64s:
    if column.type != pa.binary_view():
        return int64s_of(pc.binary_length(column))
    views = np.frombuffer(column.buffers()[1], dtype=np.int32).reshape(-1, 4)
    lengths: Int64s = views[column.offset : column.offset + len(column), 0].astype(np.int64)
    lengths[nulls_of(column)] = 0
    return lengths


class _ChecksummedFile:
    """A file that knows size and CRC of the bytes written, as pyarrow takes one."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.size_bytes = 0
        self.crc = 0
        self._file: Final = file

    def write(self, data: bytes) -> int:
        self.size_bytes += len(data)
        self.crc = crc32c(data, self.crc)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Leave it to the file's end."""

    def close(self) -> None:
        self.closed = True
