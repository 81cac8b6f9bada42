"""The format of remote segments: a Parquet file with records of one partition, in the order of their offsets.

Its columns are those of the DataFrame source but for the topic, with the same names and types, so that any
reader of Parquet sees the records as Spark does. Columns have field ids, by which table formats refer to
them. Key-value metadata in the footer name the partition. Pages have checksums, since a ranged read cannot be
compared with the object's CRC.

Offsets and timestamps have statistics: by them a reader finds the row group with a record. Typed columns,
which the topics of tables may have, stand behind the others, so that the others lie together in a row group;
those of one scalar have statistics, which tables show to their readers.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import pyarrow as pa

from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.typed_columns import TypedColumns
from sparklog.protocol.records.columns import COLUMN_TYPES

COLUMNS: Final = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
_MAY_BE_NULL: Final = frozenset({"key", "value", "headers"})
_HEADERS_FIELD_ID: Final = 7
FORMAT_VERSION: Final = 1
US_PER_MS: Final = 1000
"""The timestamps of its columns are in microseconds, those of records in milliseconds."""

_FORMAT: Final = "sparklog.format"
VALUE_SCHEMA: Final = "sparklog.value.schema"


def _numbered(field: pa.Field, field_id: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(field_id)})


def _headers_field(field_id: int) -> pa.Field:
    name, value = (COLUMN_TYPES["headers"].value_type.field(index) for index in range(2))
    header = pa.struct([_numbered(name, field_id + 2), _numbered(value, field_id + 3)])
    element = _numbered(pa.field("element", header), field_id + 1)
    return _numbered(pa.field("headers", pa.list_(element)), field_id)


def _fields() -> list[pa.Field]:
    plain = [
        _numbered(pa.field(name, COLUMN_TYPES[name], nullable=name in _MAY_BE_NULL), number)
        for number, name in enumerate(COLUMNS[:-1], start=1)
    ]
    return [*plain, _headers_field(_HEADERS_FIELD_ID)]


SCHEMA: Final = pa.schema(_fields())
RECORD_LEAVES: Final = len(COLUMNS) + 1
"""Columns of Parquet that hold the records: headers are two."""


def segment_schema(typed: TypedColumns | None) -> pa.Schema:
    return SCHEMA if typed is None else pa.schema([*SCHEMA, *typed.fields])


def segment_metadata(
    topic: str, topic_id: UUID, partition: int, typed: TypedColumns | None = None
) -> dict[str, str]:
    return {
        **({} if typed is None else {VALUE_SCHEMA: typed.text}),
        _FORMAT: str(FORMAT_VERSION),
        "sparklog.topic": topic,
        "sparklog.topic.id": str(topic_id),
        "sparklog.partition": str(partition),
    }


def check_format(metadata: Mapping[bytes, bytes] | None, name: str) -> None:
    """Check that a file is a segment that this version reads.

    Raises:
        CorruptSegmentError.
    """
    version = (metadata or {}).get(_FORMAT.encode())
    if version is None:
        raise CorruptSegmentError(f"{name} is a Parquet file, but no remote segment of sparklog")
    if not version.isdigit() or int(version) > FORMAT_VERSION:
        raise CorruptSegmentError(
            f"{name} is in format {version.decode(errors='replace')}, this version of sparklog reads up to "
            f"{FORMAT_VERSION}: a newer one wrote it"
        )
