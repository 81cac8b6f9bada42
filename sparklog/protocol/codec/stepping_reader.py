"""Reads entities item by item: those that have many, and those with tagged fields their type does not know.

kio's reader makes an entity in one go, for which the loop would wait when it has ten thousand items. And it
refuses unknown tagged fields, which newer clients may send and older ones must ignore (KIP-482). The guard
has walked over the bytes before, and knows both; it has checked nulls and lengths.
"""

from collections.abc import Callable, Generator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from kio.serial import entity_reader, readers

from sparklog.protocol.codec.layout import (
    BYTES,
    EntityLayout,
    FieldLayout,
    default_value,
    entity_layout,
    once_per_type,
)

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


def read_in_steps(
    entity_type: type[Any],
    buffer: bytes | memoryview,
    position: int,
    *,
    exact: bool,
    records_in_place: bool = False,
) -> Generator[None, None, tuple[Any, int]]:
    """Return the entity at `position`, and the position after it; yield after each item of an array.

    `exact` says that it has no tagged fields that its type does not know; otherwise they are left out.
    With `records_in_place` records stay where they are: the entity has views of `buffer`, a memoryview.
    """
    how = _How(exact, records_in_place)
    return (yield from _read_entity(entity_type, buffer, position, how))


class _How(NamedTuple):
    exact: bool
    records_in_place: bool


def _read_entity(
    entity_type: type[Any], buffer: bytes | memoryview, position: int, how: _How
) -> Generator[None, None, tuple[Any, int]]:
    layout = entity_layout(entity_type)
    values: dict[str, Any] = {}
    for field in layout.fields:
        values[field.name], position = yield from _read_field(layout, field, buffer, position, how)
    if layout.flexible:
        known = {field.tag: field for field in layout.tagged_fields}
        values |= {field.name: default_value(field) for field in layout.tagged_fields}
        count, position = _read_varint(buffer, position)
        for _ in range(count):
            tag, position = _read_varint(buffer, position)
            size_bytes, position = _read_varint(buffer, position)
            if tag in known:
                field = known[tag]
                values[field.name], _ = yield from _read_field(layout, field, buffer, position, how)
            position += size_bytes
            yield
    return entity_type(**values), position


@once_per_type
def native_reader(entity_type: type[Any]) -> _Reader:
    """Return kio's reader, which makes a whole entity; for bytes without unknown tagged fields."""
    reader: _Reader = entity_reader(entity_type)
    return reader


@once_per_type
def _has_arrays(entity_type: type[Any]) -> bool:
    return any(
        field.is_array or (field.entity_type is not None and _has_arrays(field.entity_type))
        for field in entity_layout(entity_type).all_fields
    )


def _read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    value, size = readers.read_unsigned_varint(buffer, position)
    return int(value), position + size


def _read_field(
    layout: EntityLayout, field: FieldLayout, buffer: bytes | memoryview, position: int, how: _How
) -> Generator[None, None, tuple[Any, int]]:
    if not field.is_array:
        if field.entity_type is not None and field.nullable:
            marker, size = readers.read_int8(buffer, position)
            position += size
            if marker < 0:
                return None, position
        return (yield from _read_item(layout, field, buffer, position, how))
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
        item, position = yield from _read_item(layout, field, buffer, position, how)
        items.append(item)
        yield
    return tuple(items), position


def _read_item(
    layout: EntityLayout, field: FieldLayout, buffer: bytes | memoryview, position: int, how: _How
) -> Generator[None, None, tuple[Any, int]]:
    if field.entity_type is None:
        assert field.kafka_type is not None
        nullable = field.nullable and not field.is_array
        if how.records_in_place and field.kafka_type == "records":
            return _records_in_place(buffer, position, layout.flexible)
        reader = _value_reader(field.kafka_type, layout.flexible and not field.legacy_string, nullable)
    elif how.exact and not _has_arrays(field.entity_type):
        reader = native_reader(field.entity_type)
    else:
        return (yield from _read_entity(field.entity_type, buffer, position, how))
    value, size = reader(buffer, position)
    return value, position + size


def _records_in_place(
    buffer: bytes | memoryview, position: int, compact: bool
) -> tuple[memoryview | bytes | None, int]:
    if compact:
        length, position = _read_varint(buffer, position)
        length -= 1
    else:
        length, size = readers.read_int32(buffer, position)
        position += size
    if length < 0:
        return None, position
    return buffer[position : position + length], position + length


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
