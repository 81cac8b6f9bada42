"""Entities of every API and version with arbitrary contents, for round trips."""

import random
from collections.abc import Iterator
from dataclasses import MISSING
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type, response_type
from sparklog.protocol.codec.layout import FieldLayout, entity_layout
from sparklog.protocol.errors import ErrorCode

LENGTHS = (0, 1, 5, 200)


def payload_types(api_key: ApiKey) -> Iterator[type[Any]]:
    """Yield the request and response types of every version."""
    versions = known_versions(api_key)
    for version in range(versions.min_version, versions.max_version + 1):
        yield request_type(api_key, version)
        yield response_type(api_key, version)


def arbitrary_entity(entity_type: type[Any], source: random.Random) -> Any:
    """Return an entity whose fields are defaults, nulls, empty, short or long."""
    values: dict[str, Any] = {}
    for field in entity_layout(entity_type).all_fields:
        if field.field.default is not MISSING and source.random() < 0.3:
            continue
        if field.nullable and field.tag is None and source.random() < 0.2:
            values[field.name] = None
        elif field.is_array:
            values[field.name] = tuple(_value(field, source) for _ in range(source.choice((0, 1, 2))))
        else:
            values[field.name] = _value(field, source)
    return entity_type(**values)


def _value(field: FieldLayout, source: random.Random) -> Any:
    if field.entity_type is not None:
        return arbitrary_entity(field.entity_type, source)
    match field.kafka_type:
        case "bool":
            return source.random() < 0.5
        case "error_code":
            return source.choice(list(ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=source.randrange(2**31))
        case "datetime_i64":
            return datetime.fromtimestamp(source.randrange(2**31), tz=UTC)
        case "uuid":
            return UUID(int=source.getrandbits(128) | 1)
        case "string":
            return "é" * source.choice(LENGTHS)
        case "bytes" | "records":
            return source.randbytes(source.choice(LENGTHS))
        case "float64":
            return source.random()
        case integer:
            assert integer is not None
            return source.getrandbits(int(integer.lstrip("uint")) - 1)
