"""Reads entities that carry tagged fields their type does not know.

Newer clients may send such fields and older ones must ignore them (KIP-482), but kio's reader refuses them.
The guard finds them while it walks; only then is this slower reader used. It steps item by item, so it
reserves nothing in advance; the guard has already checked nulls and lengths.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from kio.serial import readers

from sparklog.wire.layout import BYTES, EntityLayout, FieldLayout, default_value, entity_layout

_Reader: TypeAlias = Callable[[bytes | memoryview, int], tuple[Any, int]]
"""kio's convention: (buffer, position) -> (value, size)."""

_FIXED_READERS: dict[str, _Reader] = {
    "bool": readers.read_boolean,
    "int8": readers.read_int8,
    "uint8": readers.read_uint8,
    "int16": readers.read_int16,
    "uint16": readers.read_uint16,
    "error_code": readers.read_error_code,
    "int32": readers.read_int32,
    "uint32": readers.read_uint32,
    "timedelta_i32": readers.read_timedelta_i32,
    "int64": readers.read_int64,
    "uint64": readers.read_uint64,
    "float64": readers.read_float64,
    "timedelta_i64": readers.read_timedelta_i64,
    "uuid": readers.read_uuid,
}


def read_tolerantly(entity_type: type[Any], buffer: bytes | memoryview, position: int) -> tuple[Any, int]:
    """Return the entity at `position` without its unknown tagged fields, and the position after it."""
    layout = entity_layout(entity_type)
    values: dict[str, Any] = {}
    for field in layout.fields:
        values[field.name], position = _read_field(layout, field, buffer, position)
    if layout.flexible:
        known = {field.tag: field for field in layout.tagged_fields}
        values |= {field.name: default_value(field) for field in layout.tagged_fields}
        count, position = _read_varint(buffer, position)
        for _ in range(count):
            tag, position = _read_varint(buffer, position)
            size_bytes, position = _read_varint(buffer, position)
            if tag in known:
                field = known[tag]
                values[field.name], _ = _read_field(layout, field, buffer, position)
            position += size_bytes
    return entity_type(**values), position


def _read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    value, size = readers.read_unsigned_varint(buffer, position)
    return int(value), position + size


def _read_field(
    layout: EntityLayout, field: FieldLayout, buffer: bytes | memoryview, position: int
) -> tuple[Any, int]:
    if not field.is_array:
        if field.entity_type is not None and field.nullable and field.tag is None:
            marker, size = readers.read_int8(buffer, position)
            position += size
            if marker < 0:
                return None, position
        return _read_item(layout, field, buffer, position)
    if layout.flexible:
        count, position = _read_varint(buffer, position)
        count -= 1
    else:
        count, size = readers.read_int32(buffer, position)
        position += size
    if count < 0:
        return None, position
    items = []
    for _ in range(count):
        item, position = _read_item(layout, field, buffer, position)
        items.append(item)
    return tuple(items), position


def _read_item(
    layout: EntityLayout, field: FieldLayout, buffer: bytes | memoryview, position: int
) -> tuple[Any, int]:
    if field.entity_type is not None:
        return read_tolerantly(field.entity_type, buffer, position)
    assert field.kafka_type is not None
    nullable = field.nullable and not field.is_array
    reader = _value_reader(field.kafka_type, layout.flexible and not field.legacy_string, nullable)
    value, size = reader(buffer, position)
    return value, position + size


@cache
def _value_reader(kafka_type: str, compact: bool, nullable: bool) -> _Reader:
    reader: _Reader
    if kafka_type in _FIXED_READERS:
        reader = _FIXED_READERS[kafka_type]
    elif kafka_type == "datetime_i64":
        reader = readers.read_nullable_datetime_i64 if nullable else readers.read_datetime_i64
    elif compact and kafka_type in BYTES:
        reader = (
            readers.read_compact_string_as_bytes_nullable
            if nullable
            else readers.read_compact_string_as_bytes
        )
    elif compact:
        reader = readers.read_compact_string_nullable if nullable else readers.read_compact_string
    elif kafka_type in BYTES:
        reader = readers.read_nullable_legacy_bytes if nullable else readers.read_legacy_bytes
    else:
        reader = readers.read_nullable_legacy_string if nullable else readers.read_legacy_string
    return reader
