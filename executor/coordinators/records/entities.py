"""Common parts of the keys and values of coordinators' records, and their older versions.

A key's first two bytes are its record type (`__api_key__`); keys have one version. A value's first two bytes
are its version. One class represents all versions of a value: it has every field, and a field's metadata may
limit the versions that have it (`in_versions`); in the others it has its default. Bytes are read and written
through the version's own type (`entity_of_version`), which kio and the encoder understand.

Entities are the wire form, with Kafka's -1. A zero UUID is `None`.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, is_dataclass, make_dataclass
from functools import reduce
from operator import or_
from types import GenericAlias, MappingProxyType, UnionType
from typing import Any, ClassVar, Final, TypeAlias, get_args, get_origin

from kio.static.constants import EntityType

from sparklog.protocol.codec.layout import once_per_type

_Metadata: TypeAlias = Mapping[str, object]

INT8: Final[_Metadata] = MappingProxyType({"kafka_type": "int8"})
INT16: Final[_Metadata] = MappingProxyType({"kafka_type": "int16"})
INT32: Final[_Metadata] = MappingProxyType({"kafka_type": "int32"})
INT64: Final[_Metadata] = MappingProxyType({"kafka_type": "int64"})
STRING: Final[_Metadata] = MappingProxyType({"kafka_type": "string"})
BYTES: Final[_Metadata] = MappingProxyType({"kafka_type": "bytes"})
UUID_TYPE: Final[_Metadata] = MappingProxyType({"kafka_type": "uuid"})


def tagged(metadata: _Metadata, tag: int) -> _Metadata:
    """Return the metadata of a field that is left out of the bytes if it has its default (KIP-482)."""
    return {**metadata, "tag": tag}


def in_versions(metadata: _Metadata, first: int, last: int | None = None) -> _Metadata:
    """Return the metadata of a field that only the versions from `first` to `last` have (inclusive)."""
    return {**metadata, "first_version": first, "last_version": last}


class CoordinatorKey:
    """Base of the keys: kio's attributes of an entity, and the number of the record type."""

    __slots__ = ()
    __type__: ClassVar = EntityType.data
    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[int] = 0
    __api_key__: ClassVar[int]


class CoordinatorValue:
    """Base of the values. The class itself is not a version; `entity_of_version` gives one."""

    __slots__ = ()
    __type__: ClassVar = EntityType.data
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int]
    __highest_version__: ClassVar[int] = 0
    """Versions from 0 up to this one are read."""
    __first_flexible_version__: ClassVar[int] = 0

    @property
    def written_version(self) -> int:
        """Return the version in which Kafka 4.3 writes this value."""
        return self.__highest_version__


class NestedEntity:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[int] = 0


@once_per_type
def entity_of_version(value_type: type[CoordinatorValue], version: int) -> type[Any]:
    """Return the type that reads and writes a value's bytes at `version`."""
    assert 0 <= version <= value_type.__highest_version__, (value_type, version)
    return _of_version(value_type, version, version >= value_type.__first_flexible_version__)


def to_newest(value_type: type[Any]) -> Callable[[Any], Any]:
    """Return the function that converts an entity of any version to a `value_type`."""
    names = [(each.name, _struct(each.type)) for each in fields(value_type)]
    converters = {name: to_newest(struct) for name, struct in names if struct is not None}

    def convert(entity: Any) -> Any:
        present = {name: getattr(entity, name) for name, _ in names if hasattr(entity, name)}
        for name, inner in converters.items():
            value = present.get(name)
            if isinstance(value, tuple):
                present[name] = tuple(map(inner, value))
            elif value is not None:
                present[name] = inner(value)
        return value_type(**present)

    return convert


@once_per_type
def _of_version(entity_type: type[Any], version: int, flexible: bool) -> type[Any]:
    own_fields: list[tuple[str, Any, Field[Any]]] = []
    for each in fields(entity_type):
        if _has(each, version):
            metadata = {key: each.metadata[key] for key in ("kafka_type", "tag") if key in each.metadata}
            own: Field[Any] = field(metadata=metadata, default=each.default)
            own_fields.append((each.name, _annotation(each.type, version, flexible), own))
    return make_dataclass(
        entity_type.__name__,
        own_fields,
        frozen=True,
        slots=True,
        kw_only=True,
        namespace={
            "__type__": entity_type.__type__,
            "__flexible__": flexible,
            "__version__": version,
            "__module__": entity_type.__module__,
        },
    )


def _has(each: Field[Any], version: int) -> bool:
    last = each.metadata.get("last_version")
    return bool(each.metadata.get("first_version", 0) <= version and (last is None or version <= last))


def _annotation(annotation: Any, version: int, flexible: bool) -> Any:
    """Return the annotation with its struct, if it has one, at `version`."""
    if get_origin(annotation) is UnionType:
        return reduce(or_, (_annotation(part, version, flexible) for part in get_args(annotation)))
    struct = _struct(annotation)
    if struct is None:
        return annotation
    own = _of_version(struct, version, flexible)
    return GenericAlias(tuple, (own, ...)) if get_origin(annotation) is tuple else own


def _struct(annotation: Any) -> type[Any] | None:
    if is_dataclass(annotation):
        return annotation if isinstance(annotation, type) else type(annotation)
    return next((found for part in get_args(annotation) if (found := _struct(part)) is not None), None)
