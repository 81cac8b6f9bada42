"""Messages as JSON: frozen dataclasses whose fields are plain values, tuples, mappings and such dataclasses.

Decoding creates objects of the fields' types only, for any bytes. Bytes are written in base 64.
"""

import dataclasses
import json
import types
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

Message = TypeVar("Message")


class MessageError(ValueError):
    """Malformed bytes; the message says what is wrong."""


def encoded(message: Any) -> bytes:
    return json.dumps([type(message).__name__, as_data(message)], separators=(",", ":")).encode()


def decoded(data: bytes, known: Mapping[str, type[Message]]) -> Message:
    """Return the message in the bytes, of one of the types in `known`.

    Raises:
        MessageError: the bytes are not such a message.
    """
    try:
        name, fields = json.loads(data)
    except (ValueError, TypeError) as error:
        raise MessageError(f"not a pair of a name and fields in JSON: {error}") from None
    if not isinstance(name, str) or name not in known:
        raise MessageError(f"unknown message {name!r:.80}")
    message: Message = _value(known[name], fields, name)
    return message


def as_data(value: Any) -> Any:
    """Return a value of a message as data for `json.dumps`."""
    if dataclasses.is_dataclass(value):
        return {field.name: as_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(item) for item in value]
    return value


_PLAIN: Final = (str, bool, int, float)


def _value(hint: Any, data: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return _value(hint, data, where)
    if origin is tuple and isinstance(data, list):
        if arguments[-1] is ...:
            arguments = (arguments[0],) * len(data)
        if len(arguments) != len(data):
            raise MessageError(f"{where} has {len(data)} parts, not {len(arguments)}")
        return tuple(_value(each, item, where) for each, item in zip(arguments, data, strict=True))
    if origin is Mapping and isinstance(data, dict):
        return {key: _value(arguments[1], item, where) for key, item in data.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(data, dict):
        hints = _hints(hint)
        if data.keys() != hints.keys():
            raise MessageError(f"{where} has the fields {sorted(data)}, not {sorted(hints)}")
        fields = {name: _value(hints[name], item, f"{where}.{name}") for name, item in data.items()}
        return hint(**fields)
    if hint is bytes and isinstance(data, str):
        return b64decode(data, validate=True)
    if hint is float and type(data) is int:
        return float(data)
    if hint in _PLAIN and type(data) is hint:
        return data
    raise MessageError(f"{where} can't be {type(data).__name__}")


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
