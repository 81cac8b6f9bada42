"""The layout of an entity's bytes, from its dataclass; the one place that reads kio's field metadata.

kio's entities (and the record schemas made in their manner) carry the Kafka type and the tag of each field
in `dataclasses.Field.metadata`, and nullability and arrays in the annotation. The guard, the encoder, the
stepping reader and the version converters are all compiled from what is returned here.

Encodings: flexible entities (KIP-482) have compact lengths (varint, one more than the length, 0 for null)
and end in tagged fields; the others have int16 lengths for strings and int32 for bytes and arrays, -1 for
null. A nullable struct is preceded by one byte, -1 for null (KIP-893).
"""

import functools
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, Final, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from kio.static.constants import EntityType

from sparklog.protocol.errors import ErrorCode

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def once_per_type(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Cache the function's result for each type, as `functools.cache` does, but with its signature."""
    return cast(Callable[_Parameters, _Result], functools.cache(function))


FIXED_SIZE_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
"""Sizes of the types that always take the same number of bytes."""

STRINGS: Final = frozenset({"string"})
MAX_STRING_BYTES: Final = 0x7FFF
"""Bound of the older encoding's int16 lengths. Kafka keeps to it in compact strings, too."""
BYTES: Final = frozenset({"bytes", "records"})


@dataclass(frozen=True, slots=True)
class FieldLayout:
    name: str
    kafka_type: str | None
    """Type of the value, or of the items of an array; None for a struct."""
    entity_type: type[Any] | None
    """The struct's type, or None for a primitive."""
    is_array: bool
    nullable: bool
    """Whether the array, or the value that is not in an array, may be null."""
    tag: int | None
    legacy_string: bool
    """True for RequestHeader.client_id, an int16 string even in the flexible header v2 (KIP-511)."""
    field: Field[Any]


@dataclass(frozen=True, slots=True)
class EntityLayout:
    """All fields of an entity, in the order of the wire; tagged fields apart, by tag."""

    name: str
    is_request: bool
    flexible: bool
    fields: tuple[FieldLayout, ...]
    tagged_fields: tuple[FieldLayout, ...]

    @property
    def all_fields(self) -> tuple[FieldLayout, ...]:
        """Tagged fields included."""
        return self.fields + self.tagged_fields


@once_per_type
def entity_layout(entity_type: type[Any]) -> EntityLayout:
    """Return the layout of an entity type.

    Raises:
        TypeError: an annotation that kio would not understand either.
    """
    laid_out = tuple(_field_layout(entity_type, field) for field in fields(entity_type))
    tagged = sorted((field for field in laid_out if field.tag is not None), key=lambda field: field.tag or 0)
    version = getattr(entity_type, "__version__", None)
    return EntityLayout(
        name=entity_type.__name__ if version is None else f"{entity_type.__name__} v{int(version)}",
        is_request=getattr(entity_type, "__type__", None) is EntityType.request,
        flexible=bool(entity_type.__flexible__),
        fields=tuple(field for field in laid_out if field.tag is None),
        tagged_fields=tuple(tagged),
    )


def _field_layout(entity_type: type[Any], field: Field[Any]) -> FieldLayout:
    annotation, nullable = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    if is_array:
        item_type, ellipsis = get_args(annotation)
        if ellipsis is not Ellipsis:
            raise TypeError(f"{entity_type.__name__}.{field.name}: {field.type} is not a Kafka array")
        annotation, _ = _without_none(item_type)
    is_struct = is_dataclass(annotation)
    return FieldLayout(
        name=field.name,
        kafka_type=None if is_struct else field.metadata["kafka_type"],
        entity_type=annotation if is_struct else None,
        is_array=is_array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        legacy_string=entity_type.__name__ == "RequestHeader" and field.name == "client_id",
        field=field,
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    arguments = get_args(annotation)
    rest = [argument for argument in arguments if argument is not NoneType]
    if len(rest) != 1:
        raise TypeError(f"{annotation} is not one type or None")
    return rest[0], len(rest) < len(arguments)


@once_per_type
def minimum_size_bytes(entity_type: type[Any]) -> int:
    """Return the least number of bytes an entity can take, which bounds how many an array can hold.

    >>> from kio.schema.produce.v9.request import PartitionProduceData
    >>> minimum_size_bytes(PartitionProduceData)  # int32, one byte of length, one of tagged fields
    6
    """
    layout = entity_layout(entity_type)
    total = sum(_minimum_field_size_bytes(layout, field) for field in layout.fields)
    return total + 1 if layout.flexible else total


def minimum_item_size_bytes(layout: EntityLayout, field: FieldLayout) -> int:
    """Return the least number of bytes one item of the array `field`, or its plain value, can take."""
    if field.entity_type is not None:
        return minimum_size_bytes(field.entity_type)
    assert field.kafka_type is not None
    fixed = FIXED_SIZE_BYTES.get(field.kafka_type)
    if fixed is not None:
        return fixed
    if layout.flexible and not field.legacy_string:
        return 1
    return 2 if field.kafka_type in STRINGS else 4


def _minimum_field_size_bytes(layout: EntityLayout, field: FieldLayout) -> int:
    if field.is_array:
        return 1 if layout.flexible else 4
    if field.entity_type is not None and field.nullable:
        return 1
    return minimum_item_size_bytes(layout, field)


_OBJECT_BYTES: Final = 32
"""Header of a Python object that the garbage collector knows."""
_REFERENCE_BYTES: Final = 8
_TUPLE_BYTES: Final = 56
_VALUE_BYTES: Final = {
    "bool": 0,
    "int8": 0,
    "uint8": 0,
    "error_code": 0,
    "string": 64,
    "bytes": 48,
    "records": 48,
    "uuid": 112,
    "datetime_i64": 64,
    "timedelta_i32": 48,
    "timedelta_i64": 48,
}
"""Size of a value without the reference to it, rounded up to the allocator's sizes; others are integers.

Strings and bytes without their contents."""
_INTEGER_BYTES: Final = 32


def item_memory_bytes(field: FieldLayout) -> int:
    """Return the bytes of one item of the array `field`, or its plain value, as CPython 3.11 objects.

    Without the items of arrays inside of it, and without the contents of strings and bytes.

    >>> from kio.schema.list_offsets.v1.request import ListOffsetsTopic
    >>> (partitions,) = (f for f in entity_layout(ListOffsetsTopic).fields if f.is_array)
    >>> item_memory_bytes(partitions)  # an object of two references to integers, and the reference to it
    120
    """
    if field.entity_type is None:
        assert field.kafka_type is not None
        return _REFERENCE_BYTES + _VALUE_BYTES.get(field.kafka_type, _INTEGER_BYTES)
    inner = entity_layout(field.entity_type).all_fields
    values = sum(
        _TUPLE_BYTES + _REFERENCE_BYTES if part.is_array else item_memory_bytes(part) for part in inner
    )
    return _OBJECT_BYTES + _REFERENCE_BYTES + values


_ZERO_VALUES: Final[dict[str, Any]] = {
    "bool": False,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime.fromtimestamp(0, tz=UTC),
    "float64": 0.0,
    "uuid": None,
    "string": "",
    "bytes": b"",
    "records": None,
}


def default_value(field: FieldLayout) -> Any:
    """Return the default value of a field: the schema's, else Kafka's implicit one.

    Implicit are null where the schema has a nullable field without a default of its own in kio, the empty
    array, the struct of defaults, and zero.
    """
    if field.field.default is not MISSING:
        return field.field.default
    if field.is_array:
        return ()
    if field.nullable:
        return None
    if field.entity_type is not None:
        layout = entity_layout(field.entity_type)
        return field.entity_type(**{inner.name: default_value(inner) for inner in layout.all_fields})
    assert field.kafka_type is not None
    return _ZERO_VALUES.get(field.kafka_type, 0)
