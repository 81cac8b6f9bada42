"""Walks over serialized entities before kio's reader may see them.

kio's native reader reserves room for as many items as an array claims, and a claim of two thousand million
ends the process. So for each entity type a small function is compiled that steps over its bytes: fixed-size
runs in one step, every array claim measured against the bytes that remain, every length and null checked.

An item of one byte becomes objects of a hundred, and costs its handler some work. So the walk also adds up
the memory of the arrays' items as objects (`item_memory_bytes`), array by array before it steps into one, and
stops when that exceeds its allowance. An entity that passes is safe to read, and costs no more memory than
the allowance and a small multiple of the bytes received. Requests' allowances are in `allowance`.

A string of a request has no more bytes than Kafka takes, since some are kept. One of a record or a response
may be longer: a cluster must be able to start from the records in its log.

Rule: bytes from a socket or a disk become entities through `decode_entity`, never through kio directly.
"""

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any, Final, NoReturn, TypeAlias

from kio.serial.errors import SerialError

from sparklog.protocol.codec.layout import (
    FIXED_SIZE_BYTES,
    MAX_STRING_BYTES,
    STRINGS,
    EntityLayout,
    FieldLayout,
    entity_layout,
    item_memory_bytes,
    minimum_item_size_bytes,
    minimum_size_bytes,
    once_per_type,
)
from sparklog.protocol.codec.stepping_reader import native_reader, read_in_steps
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode, KafkaError

ReadableBuffer: TypeAlias = bytes | memoryview
"""Bytes that kio can read: it refuses writable buffers, so a memoryview must be read-only."""

Walker: TypeAlias = Callable[[bytes | bytearray | memoryview, int, int], int]
"""(buffer, position, allowance in bytes) -> the position after the entity, or its complement (`~end`) if it
has unknown tags or a null that is not -1, which kio does not read."""

UNLIMITED: Final = 1 << 62
"""The allowance for entities that this cluster wrote itself."""

_TAG_BYTES: Final = 256
"""Memory for which a tagged field counts: an unknown one becomes no object, but must be stepped over."""

_MAX_HEADER_TAGS: Final = 64

DECODE_ERRORS: Final = (SerialError, ValueError, OverflowError, LookupError)
"""kio's errors for values it cannot represent: text that is no UTF-8, dates beyond the calendar."""


class MalformedRequestError(KafkaError):
    """Bytes that are not the entity they should be."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class TooManyItemsError(MalformedRequestError):
    """The items of an entity's arrays would take more memory than their allowance."""


def check_entity(
    entity_type: type[Any],
    buffer: bytes | bytearray | memoryview,
    position: int = 0,
    allowance_bytes: int = UNLIMITED,
) -> int:
    """Return the position just after the `entity_type` that starts at `position`.

    `buffer` must end where the frame ends. Tagged fields that the type does not know are stepped over.

    Raises:
        MalformedRequestError: a length is impossible for the bytes that remain, or a null stands where none
            may.
        TooManyItemsError: its items would take more than `allowance_bytes` of memory.
    """
    end = walker(entity_type)(buffer, position, allowance_bytes)
    return end if end >= 0 else ~end


def decode_entity(
    entity_type: type[Any],
    buffer: ReadableBuffer,
    position: int = 0,
    allowance_bytes: int = UNLIMITED,
    *,
    records_in_place: bool = False,
) -> tuple[Any, int]:
    """Check and read the `entity_type` at `position`; return it and the position after it.

    Unknown tagged fields are ignored, as KIP-482 asks. Byte fields are copied out of `buffer`, but for
    records if `records_in_place`: these are then views of it.

    Raises:
        MalformedRequestError: the bytes are not such an entity.
        TooManyItemsError: its items would take more than `allowance_bytes` of memory.
    """
    end = walker(entity_type)(buffer, position, allowance_bytes)
    try:
        if end < 0 or records_in_place:
            exact = end >= 0
            return in_one_go(
                read_in_steps(entity_type, buffer, position, exact=exact, records_in_place=records_in_place)
            )
        entity, size = native_reader(entity_type)(buffer, position)
    except DECODE_ERRORS as error:
        raise MalformedRequestError(f"{entity_layout(entity_type).name} at {position}: {error}") from error
    assert position + size == end, f"the guard and kio disagree about {entity_type}: {position + size}, {end}"
    return entity, end


@coroutine
def decode_entity_in_steps(
    entity_type: type[Any], buffer: ReadableBuffer, position: int, allowance_bytes: int
) -> Generator[None, None, tuple[Any, int]]:
    """Return what `decode_entity` does, and yield after the walk and after each item of an array.

    Raises:
        MalformedRequestError: the bytes are not such an entity.
        TooManyItemsError: its items would take more than `allowance_bytes` of memory.
    """
    end = walker(entity_type)(buffer, position, allowance_bytes)
    yield
    try:
        return (yield from read_in_steps(entity_type, buffer, position, exact=end >= 0))
    except DECODE_ERRORS as error:
        raise MalformedRequestError(f"{entity_layout(entity_type).name} at {position}: {error}") from error


def skip_tagged_fields(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """Return the position after the tagged fields of a header, none of which has a meaning so far.

    Raises:
        MalformedRequestError: they reach beyond the buffer.
        TooManyItemsError: there are more than any client sends.
    """
    try:
        if buffer[position] == 0:
            return position + 1
    except IndexError:
        _beyond("header", position, len(buffer))
    return check_entity(_TaggedFieldsOnly, buffer, position, _MAX_HEADER_TAGS * _TAG_BYTES)


@dataclass(frozen=True, slots=True)
class _TaggedFieldsOnly:
    """A flexible struct without fields."""

    __flexible__ = True


@once_per_type
def walker(entity_type: type[Any]) -> Walker:
    """Return the compiled walk over an entity type, for callers that keep it."""
    source = _WalkerSource(entity_type).render()
    namespace: dict[str, Any] = {
        "read_int16": struct.Struct(">h").unpack_from,
        "read_int32": struct.Struct(">i").unpack_from,
        "struct_error": struct.error,
        "long_varint": _long_varint,
        "null": _null,
        "negative": _negative,
        "too_long": _too_long,
        "too_many": _too_many,
        "too_much": _too_much,
        "beyond": _beyond,
        "wrong_size": _wrong_size,
    }
    exec(compile(source, f"<walker of {entity_layout(entity_type).name}>", "exec"), namespace)
    walk: Walker = namespace["walk"]
    return walk


def _long_varint(buffer: bytes | memoryview, position: int, value: int) -> tuple[int, int]:
    """Finish a varint whose first byte, `value`, was at `position - 1` and says that more follow."""
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFF_FFFF:
                break
            return value, position
    raise MalformedRequestError(f"varint before position {position} exceeds 31 bits")


def _null(what: str, position: int) -> NoReturn:
    raise MalformedRequestError(f"{what} is null at position {position}, and may not be")


def _negative(what: str, length: int, position: int) -> NoReturn:
    raise MalformedRequestError(f"{what} has length {length} at position {position}")


def _too_long(what: str, length: int, position: int) -> NoReturn:
    raise MalformedRequestError(
        f"{what} has {length} bytes at position {position}; a string has at most {MAX_STRING_BYTES}"
    )


def _too_many(what: str, count: int, position: int, end: int) -> NoReturn:
    raise MalformedRequestError(
        f"{what} claims {count} items at position {position}, where {max(end - position, 0)} bytes remain"
    )


def _too_much(what: str, count: int, position: int, allowance_bytes: int) -> NoReturn:
    raise TooManyItemsError(
        f"{what} has {count} items at position {position}, with which it would take more than"
        f" {allowance_bytes} bytes of memory"
    )


def _beyond(what: str, position: int, end: int) -> NoReturn:
    raise MalformedRequestError(f"{what} ends at position {position} of {end} bytes")


def _wrong_size(what: str, position: int, expected: int) -> NoReturn:
    raise MalformedRequestError(f"tagged field {what} ends at position {position}, not {expected} as it says")


class _WalkerSource:
    """The Python source of one walk; all structs inside are unrolled into one function."""

    def __init__(self, entity_type: type[Any]) -> None:
        self._entity_type = entity_type
        self._limits_strings = entity_layout(entity_type).is_request
        self._lines: list[str] = []
        self._pending_bytes = 0
        """Fixed-size bytes not yet stepped over: they join the next step."""

    def render(self) -> str:
        name = entity_layout(self._entity_type).name
        self._lines = [
            "def walk(b, p, allowance):",
            "    left = allowance",
            "    end = len(b)",
            "    unknown = False",
            "    try:",
        ]
        self._entity(self._entity_type, 2, entity_layout(self._entity_type).name)
        self._step(2)
        self._emit(2, "pass")  # some requests have no fields at all
        self._lines += [
            "    except (IndexError, struct_error):",
            f"        beyond({name!r}, p, end)",
            "    if p > end:",
            f"        beyond({name!r}, p, end)",
            "    return ~p if unknown else p",
        ]
        return "\n".join(self._lines)

    def _emit(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _step(self, depth: int) -> None:
        if self._pending_bytes:
            self._emit(depth, f"p += {self._pending_bytes}")
            self._pending_bytes = 0

    def _take_byte(self, depth: int, name: str) -> None:
        skipped, self._pending_bytes = self._pending_bytes, 0
        self._emit(depth, f"{name} = b[p + {skipped}]" if skipped else f"{name} = b[p]")
        self._emit(depth, f"p += {skipped + 1}")

    def _take_varint(self, depth: int, name: str) -> None:
        self._take_byte(depth, name)
        self._emit(depth, f"if {name} > 127:")
        self._emit(depth + 1, f"{name}, p = long_varint(b, p, {name})")

    def _take_integer(self, depth: int, size_bytes: int) -> None:
        skipped, self._pending_bytes = self._pending_bytes, 0
        self._emit(depth, f"n = read_int{size_bytes * 8}(b, p + {skipped})[0]")
        self._emit(depth, f"p += {skipped + size_bytes}")

    def _entity(self, entity_type: type[Any], depth: int, path: str) -> None:
        layout = entity_layout(entity_type)
        for field in layout.fields:
            self._field(layout, field, depth, f"{path}.{field.name}")
        if layout.flexible:
            self._tags(layout, depth, path)

    def _field(self, layout: EntityLayout, field: FieldLayout, depth: int, path: str) -> None:
        if field.is_array:
            self._array(layout, field, depth, path)
        elif field.entity_type is not None and field.nullable:
            self._take_byte(depth, "n")
            self._emit(depth, "if n < 128:")
            self._entity(field.entity_type, depth + 1, path)
            self._step(depth + 1)
            # To Java any byte below 0 is null, to kio -1 alone, so it must not see another.
            self._emit(depth, "elif n != 255:")
            self._emit(depth + 1, "unknown = True")
        else:
            self._item(layout, field, field.nullable, depth, path)

    def _item(self, layout: EntityLayout, field: FieldLayout, nullable: bool, depth: int, path: str) -> None:
        if field.entity_type is not None:
            self._entity(field.entity_type, depth, path)
            return
        assert field.kafka_type is not None
        fixed = FIXED_SIZE_BYTES.get(field.kafka_type)
        if fixed is not None:
            self._pending_bytes += fixed
        elif layout.flexible and not field.legacy_string:
            self._take_varint(depth, "n")
            if self._limits_strings and field.kafka_type in STRINGS:
                # Inside the branch of lengths that take more than a byte: names pay nothing for it.
                self._emit(depth + 1, f"if n > {MAX_STRING_BYTES + 1}:")
                self._emit(depth + 2, f"too_long({path!r}, n - 1, p)")
            self._emit(depth, "if n:")
            self._emit(depth + 1, "p += n - 1")
            if not nullable:
                self._emit(depth, "else:")
                self._emit(depth + 1, f"null({path!r}, p)")
        else:
            self._take_integer(depth, 2 if field.kafka_type in STRINGS else 4)
            self._emit(depth, "if n > 0:")
            self._emit(depth + 1, "p += n")
            self._refuse_negative(nullable, depth, path)

    def _refuse_negative(self, nullable: bool, depth: int, path: str) -> None:
        if nullable:
            self._emit(depth, "elif n < -1:")
            self._emit(depth + 1, f"negative({path!r}, n, p)")
        else:
            self._emit(depth, "elif n < 0:")
            self._emit(depth + 1, f"null({path!r}, p) if n == -1 else negative({path!r}, n, p)")

    def _array(self, layout: EntityLayout, field: FieldLayout, depth: int, path: str) -> None:
        if layout.flexible:
            self._take_varint(depth, "n")
            self._emit(depth, "n -= 1")
        else:
            self._take_integer(depth, 4)
        minimum = max(1, minimum_item_size_bytes(layout, field))
        self._emit(depth, "if n > 0:")
        self._emit(depth + 1, f"if n * {minimum} > end - p:")
        self._emit(depth + 2, f"too_many({path!r}, n, p, end)")
        self._count(depth + 1, item_memory_bytes(field), path)
        fixed = _fixed_item_size_bytes(field)
        if fixed is not None:
            self._emit(depth + 1, f"p += n * {fixed}")
        else:
            self._emit(depth + 1, "for _ in range(n):")
            self._item(layout, field, False, depth + 2, f"{path}[]")
            self._step(depth + 2)
        self._refuse_negative(field.nullable, depth, path)

    def _count(self, depth: int, memory_bytes: int, path: str) -> None:
        self._emit(depth, f"left -= n * {memory_bytes}")
        self._emit(depth, "if left < 0:")
        self._emit(depth + 1, f"too_much({path!r}, n, p, allowance)")

    def _tags(self, layout: EntityLayout, depth: int, path: str) -> None:
        self._take_varint(depth, "n")
        self._emit(depth, "if n:")
        self._count(depth + 1, _TAG_BYTES, path + ".tags")
        after = f"after_{depth}"
        self._emit(depth + 1, "for _ in range(n):")
        inner = depth + 2
        self._take_varint(inner, "tag")
        self._take_varint(inner, after)
        self._emit(inner, f"{after} += p")
        self._emit(inner, f"if {after} > end:")
        self._emit(inner + 1, f"beyond({path + '.tags'!r}, {after}, end)")
        for field in layout.tagged_fields:
            self._emit(inner, f"if tag == {field.tag}:")
            self._field(layout, field, inner + 1, f"{path}.{field.name}")
            self._step(inner + 1)
            self._emit(inner + 1, f"if p != {after}:")
            self._emit(inner + 2, f"wrong_size({path + '.' + field.name!r}, p, {after})")
            self._emit(inner + 1, "continue")
        self._emit(inner, "unknown = True")
        self._emit(inner, f"p = {after}")


def _fixed_item_size_bytes(field: FieldLayout) -> int | None:
    """Return the size of every item of an array whose items are all of one size, else None."""
    if field.entity_type is None:
        assert field.kafka_type is not None
        return FIXED_SIZE_BYTES.get(field.kafka_type)
    layout = entity_layout(field.entity_type)
    if layout.flexible or any(
        inner.is_array or inner.entity_type is not None or inner.kafka_type not in FIXED_SIZE_BYTES
        for inner in layout.fields
    ):
        return None
    return minimum_size_bytes(field.entity_type)
