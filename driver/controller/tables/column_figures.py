"""The figures of a file's typed columns, from its footer: by them readers of a table skip files.

Bounds are in Iceberg's form of single values. Of a column that became wider an old file has those of the
narrow type, which readers know by their length.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import pyarrow.parquet as pq

from sparklog.driver.controller.tables.machine.table_files import ColumnFigures
from sparklog.node.remote_log.segments.segment_format import RECORD_LEAVES

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
