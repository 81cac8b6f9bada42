"""The pieces of a segment: its records in a window, one object for each value of the table's partition.

The rows of `MOST_WRITERS` values are written in one pass over the segment, so that memory is bounded by as
many row groups; a segment of more values is read again for each further pass.

The figures of a file's typed columns, from its footer: by them readers of a table skip files.

Bounds are in Iceberg's form of single values. Of a column that became wider an old file has those of the
narrow type, which readers know by their length.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.driver.controller.tables.machine.events import PartitionedBy, TableIdentity
from sparklog.driver.controller.tables.machine.next_commit import partition_unit_ms
from sparklog.driver.controller.tables.machine.table_files import ColumnFigures, TableFile, Window, piece_name
from sparklog.node.remote_log.object_store import ObjectExistsError, ObjectStore
from sparklog.node.remote_log.segments.row_group_rows import row_group_rows
from sparklog.node.remote_log.segments.segment_footer import OpenedSegment, SegmentFooter, open_segment
from sparklog.node.remote_log.segments.segment_format import RECORD_LEAVES, SCHEMA, US_PER_MS
from sparklog.node.remote_log.segments.segment_writer import SegmentWriter
from sparklog.node.remote_log.segments.typed_columns import typed_columns
from sparklog.protocol.records.varint_columns import Int64s

MOST_CHARACTERS: Final = 16
"""Of a bound, as Iceberg's writers have them."""
_NUMBERS: Final[Mapping[str, struct.Struct]] = {
    "INT32": struct.Struct("<i"),
    "INT64": struct.Struct("<q"),
    "FLOAT": struct.Struct("<f"),
    "DOUBLE": struct.Struct("<d"),
}


def typed_figures(metadata: pq.FileMetaData) -> tuple[ColumnFigures, ...]:
    """Return the figures of the typed columns that have statistics, and are no decimals."""
    schema = metadata.schema.to_arrow_schema()
    found = []
    for number in range(RECORD_LEAVES, metadata.num_columns):
        leaf = metadata.schema.column(number)
        columns = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        if "." in leaf.path or leaf.logical_type.type == "DECIMAL":
            continue
        if all(each.statistics is not None and each.statistics.has_null_count for each in columns):
            field_id = int(schema.field(leaf.path).metadata[b"PARQUET:field_id"])
            found.append(_figures(field_id, leaf.physical_type, columns))
    return tuple(found)


def _figures(field_id: int, physical_type: str, columns: list[pq.ColumnChunkMetaData]) -> ColumnFigures:
    statistics = [each.statistics for each in columns]
    value_count = sum(each.num_values for each in columns)
    null_count = sum(each.null_count for each in statistics)
    known = [each for each in statistics if each.has_min_max]
    lower = upper = None
    # A group without values has no bounds, and one with NaN alone, too.
    if known and all(each.has_min_max or each.num_values == 0 for each in statistics):
        smallest, largest = min(each.min_raw for each in known), max(each.max_raw for each in known)
        lower, upper = _bound(physical_type, smallest), _bound(physical_type, largest, is_upper=True)
    return ColumnFigures(field_id, value_count, null_count, lower, upper)


def _bound(physical_type: str, value: Any, *, is_upper: bool = False) -> bytes | None:
    number = _NUMBERS.get(physical_type)
    if number is not None:
        return number.pack(value)
    if physical_type != "BYTE_ARRAY":
        return None
    text = value.decode() if isinstance(value, bytes) else value
    if len(text) <= MOST_CHARACTERS:
        return bytes(text.encode())
    return None if is_upper else bytes(text[:MOST_CHARACTERS].encode())


MOST_WRITERS: Final = 8


def table_file(footer: SegmentFooter, partition: int, size_bytes: int) -> TableFile:
    groups = footer.row_groups
    return TableFile(
        footer.name,
        partition,
        groups[0].first_offset,
        groups[-1].last_offset,
        min(group.first_timestamp_ms for group in groups),
        max(group.max_timestamp_ms for group in groups),
        sum(group.record_count for group in groups),
        size_bytes,
        tuple(group.start for group in groups),
        typed_figures(footer.metadata),
    )


async def write_pieces(
    store: ObjectStore,
    identity: TableIdentity,
    window: Window,
    partitioned_by: PartitionedBy,
    value_schema: str,
    directory: Path,
) -> tuple[TableFile, ...]:
    """Write the pieces of a segment by way of files in `directory`; return those that have records.

    A piece that is in the store already has the same records: segments never change.

    Raises:
        StoreError.
    """
    opened = await open_segment(store, window.segment.name, window.segment.size_bytes)
    values: set[int] = set()
    async for rows in _rows(opened, window):
        values.update(np.unique(_values(rows, partitioned_by)).tolist())
    pieces: list[TableFile] = []
    ordered = sorted(values)
    for start in range(0, len(ordered), MOST_WRITERS):
        some = ordered[start : start + MOST_WRITERS]
        pieces += await _write(opened, identity, window, partitioned_by, value_schema, some, directory)
    return tuple(pieces)


async def _rows(opened: OpenedSegment, window: Window) -> AsyncIterator[pa.Table]:
    for index in opened.footer.groups_within(window.start_offset, window.end_offset):
        rows = await asyncio.to_thread(_decoded, await opened.row_group(index), opened.footer, index, window)
        if rows.num_rows:
            yield rows


def _decoded(data: bytes, footer: SegmentFooter, index: int, window: Window) -> pa.Table:
    slices = row_group_rows(
        data, footer, index, start_offset=window.start_offset, end_offset=window.end_offset
    )
    return pa.Table.from_batches(slices, SCHEMA)


def _values(rows: pa.Table, partitioned_by: PartitionedBy) -> Int64s:
    unit_ms = partition_unit_ms(partitioned_by)
    if unit_ms is None:
        return np.zeros(rows.num_rows, dtype=np.int64)
    microseconds: Int64s = rows.column("timestamp").combine_chunks().cast(pa.int64()).to_numpy()
    return microseconds // (unit_ms * US_PER_MS)


async def _write(
    opened: OpenedSegment,
    identity: TableIdentity,
    window: Window,
    partitioned_by: PartitionedBy,
    value_schema: str,
    values: list[int],
    directory: Path,
) -> list[TableFile]:
    paths = {value: directory / str(value) for value in values}
    with ExitStack() as stack:
        writers = {
            value: stack.enter_context(
                SegmentWriter.open(
                    path,
                    topic=identity.topic,
                    topic_id=identity.topic_id,
                    partition=window.partition,
                    typed=typed_columns(value_schema),
                )
            )
            for value, path in paths.items()
        }

        def add(rows: pa.Table) -> None:
            of_rows = _values(rows, partitioned_by)
            for value, writer in writers.items():
                for batch in rows.filter(pa.array(of_rows == value)).combine_chunks().to_batches():
                    writer.write(batch)

        async for rows in _rows(opened, window):
            await asyncio.to_thread(add, rows)
        for writer in writers.values():
            await asyncio.to_thread(writer.finish)
    pieces = []
    for value, path in paths.items():
        name = piece_name(identity.topic, identity.topic_id, window, value)
        data = await asyncio.to_thread(path.read_bytes)
        try:
            await opened.store.create(name, path)
        except ObjectExistsError:  # perhaps with other typed columns, and another size
            data = (await opened.store.get(name)).data
        written = await asyncio.to_thread(SegmentFooter.parse, data, name)
        pieces.append(table_file(written, window.partition, len(data)))
        path.unlink()
    return pieces
