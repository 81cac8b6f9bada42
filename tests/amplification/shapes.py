"""The requests that cost most for their bytes: arrays with as many of the smallest items as possible.

Generated from kio's schemas, so that an API or a field that is added is attacked as well. A shape is one
array of a request's type, however deep; in a request of that shape it has any number of items, the arrays
around it have one, all others none. Its items are empty, or differ, or name what exists: each costs something
else.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from sparklog.protocol.codec.apis import ApiKey, SupportedVersions, request_type
from sparklog.protocol.codec.encoder import encode_to_bytes, encode_varint
from sparklog.protocol.codec.frames import request_codec
from sparklog.protocol.codec.layout import FieldLayout, default_value, entity_layout, item_memory_bytes

UNKNOWN_TAGS: Final = "unknown tags"
_TAG: Final = encode_varint(10_000) + b"\0"


@dataclass(frozen=True, slots=True)
class Known:
    """Something that exists in the cluster under attack."""

    topic: str
    topic_id: UUID


class Contents(Enum):
    """What the items say."""

    EMPTY = "empty"
    DISTINCT = "distinct"
    KNOWN = "of what exists"


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to fill a request."""

    api_key: ApiKey
    version: int
    path: tuple[str, ...]
    """Names of the fields from the request to the array; empty: tagged fields that nobody knows."""
    contents: Contents

    def __str__(self) -> str:
        what = ".".join(self.path) or UNKNOWN_TAGS
        return f"{self.api_key.name} v{self.version} {what}, {self.contents.value}"

    def item_memory_bytes(self) -> int:
        """Return what the guard counts for one item."""
        if not self.path:
            return 256
        return item_memory_bytes(self._fields()[-1])

    def _fields(self) -> list[FieldLayout]:
        entity_type: Any = request_type(self.api_key, self.version)
        found = []
        for name in self.path:
            field = next(f for f in entity_layout(entity_type).all_fields if f.name == name)
            found.append(field)
            entity_type = field.entity_type
        return found


def shapes_of(api_key: ApiKey, versions: SupportedVersions) -> Iterator[Shape]:
    """Yield the shapes of every version."""
    for version in range(versions.min_version, versions.max_version + 1):
        entity_type = request_type(api_key, version)
        if entity_type.__flexible__:
            yield Shape(api_key, version, (), Contents.EMPTY)
        for path in _array_paths(entity_type):
            for contents in Contents:
                if (api_key, contents) != (ApiKey.DELETE_TOPICS, Contents.KNOWN):  # it would be there no more
                    yield Shape(api_key, version, path, contents)


def _array_paths(entity_type: type[Any]) -> Iterator[tuple[str, ...]]:
    for field in entity_layout(entity_type).all_fields:
        if field.is_array:
            yield (field.name,)
        if field.entity_type is not None:
            yield from ((field.name, *inner) for inner in _array_paths(field.entity_type))


def encoded(shape: Shape, item_count: int, known: Known) -> bytes:
    """Return the body of a request of the shape."""
    entity_type = request_type(shape.api_key, shape.version)
    filler = _Filler(shape.contents, known)
    body = encode_to_bytes(filler.entity(entity_type, shape.path, item_count, 0))
    if shape.path:
        return body
    # The last byte says that there are no tagged fields.
    return body[:-1] + encode_varint(item_count) + _TAG * item_count


class _Filler:
    def __init__(self, contents: Contents, known: Known) -> None:
        self._contents = contents
        self._known = known

    def entity(self, entity_type: type[Any], path: Sequence[str], item_count: int, number: int) -> Any:
        """Return an entity, the `number`th of its array."""
        values = {}
        for field in entity_layout(entity_type).all_fields:
            if not path or path[0] != field.name:
                values[field.name] = self._value(field, number)
            elif field.is_array:
                inner = path[1:]
                numbers = range(1 if inner else item_count)
                values[field.name] = tuple(self._item(field, inner, item_count, i) for i in numbers)
            else:
                values[field.name] = self.entity(field.entity_type or type, path[1:], item_count, number)
        return entity_type(**values)

    def _item(self, field: FieldLayout, path: Sequence[str], item_count: int, number: int) -> Any:
        if field.entity_type is not None:
            return self.entity(field.entity_type, path, item_count, number)
        return self._primitive(field, number)

    def _value(self, field: FieldLayout, number: int) -> Any:
        if field.tag is not None:
            return default_value(field)
        if field.is_array:
            return ()
        if field.entity_type is not None:
            return None if field.nullable else self.entity(field.entity_type, (), 0, number)
        return self._primitive(field, number)

    def _primitive(self, field: FieldLayout, number: int) -> Any:
        if field.name in _ALWAYS:
            return _ALWAYS[field.name]
        if self._contents is not Contents.EMPTY:
            if field.kafka_type == "uuid":
                return self._known.topic_id if self._contents is Contents.KNOWN else UUID(int=number + 1)
            if field.kafka_type == "string" and field.name in _NAMES:
                return self._known.topic if self._contents is Contents.KNOWN else f"{number:x}"
            if field.name in _PARTITIONS:
                return number
            if field.name in _CHOICES:
                return _CHOICES[field.name]
        if field.is_array:
            return {"string": "", "uuid": None}.get(field.kafka_type or "", 0)
        return default_value(field)


_TOPIC: Final = 2
_CHOICES: Final = {"resource_type": _TOPIC, "num_partitions": 1, "replication_factor": 1, "count": 1}
_ALWAYS: Final = {"acks": 1, "validate_only": True}
"""Of acks=0 there would be no answer; and the cluster is to stay as it is."""
_HEADER: Final = struct.Struct(">hhih")
_NAMES: Final = frozenset({"name", "topic", "topic_name", "topic_names", "topics", "resource_name"})
_PARTITIONS: Final = frozenset(
    {"partition", "partitions", "partition_index", "partition_indexes", "partition_id", "index"}
)


def frame_of(shape: Shape, item_count: int, known: Known) -> bytes:
    """Return a whole frame, length and header included."""
    flexible = request_codec(shape.api_key, shape.version).request_header_flexible
    header = _HEADER.pack(shape.api_key, shape.version, 0, -1) + (b"\0" if flexible else b"")
    body = encoded(shape, item_count, known)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body
