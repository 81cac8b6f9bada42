"""Messages in fixed layouts: the usual shape of a Produce and of a follower's Fetch, without entities.

A produced batch passes one Produce and, for each follower, one Fetch. Nearly all of these have the same
shape: one partition, or a few, no error, no tagged fields. Such a message is read from the buffer, and
written to it, with a few struct formats. Any other shape is an entity's.

Rules kept:
- A reader checks every length itself. It returns None for all that it does not know for certain: then the
  entity is read, which also finds the error of bytes that are no message.
- A message that is read equals the entity of the same bytes, and one that is written has the entity's bytes.
- Records are views of the buffer in which they were received. A request's are valid until its handler
  returns or lets the frame go, a response's during the call that it is passed to; records kept longer are
  copied.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias
from uuid import UUID

from sparklog.protocol.codec.encoder import Chunk

Frame: TypeAlias = memoryview | bytes

SHORT_VARINT: Final = 0x80
"""Smaller varints take one byte."""
_LAST_SHIFT: Final = 28
_NO_UUID: Final = bytes(16)
_KEPT_VALUES: Final = 4_096


class FixedRequest:
    """A request of the usual shape; it has the fields of its entity that handlers read."""

    __slots__ = ()

    api_key: ClassVar[int]
    api_version: int

    def entity(self) -> Any:
        raise NotImplementedError

    def encoded(self) -> bytes | None:
        """Return the bytes behind the client id; None if the entity has to be written."""
        return None

    def read_response(self, frame: Frame) -> Any:
        """Return the response in `frame`, with its records in place; None if the entity has to be read."""
        return None


class FixedResponse:
    """A response of the usual shape, without a throttle time."""

    __slots__ = ()

    @property
    def success_count(self) -> int:
        """The number of error codes in it, all of which are NONE."""
        raise NotImplementedError

    def entity(self) -> Any:
        raise NotImplementedError

    def frame(self, correlation_id: int) -> list[Chunk]:
        """Return the whole frame, length included, as chunks."""
        raise NotImplementedError


FixedReader: TypeAlias = Callable[[Frame, int], FixedRequest | None]
"""(frame, position after the client id) -> the request, or None if the entity has to be read."""


def entity_of(request: Any) -> Any:
    """Return the entity of a request body of either form."""
    return request.entity() if isinstance(request, FixedRequest) else request


def read_varint(frame: Frame, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 31 bits, and the position after it.

    Raises:
        IndexError: the frame ends inside it.
        ValueError: it has more bits.
    """
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < SHORT_VARINT:
            if value > 0x7FFF_FFFF:
                raise ValueError("a varint of more than 31 bits")
            return value, position
        if shift == _LAST_SHIFT:
            raise ValueError("a varint of more than five bytes")
        shift += 7


@lru_cache(_KEPT_VALUES)
def uuid_of(encoded: bytes) -> UUID:
    """Return a topic id, which is the same object each time: to make one takes as long as all of a request.

    Raises:
        ValueError: it is the null of entities, or not of 16 bytes.
    """
    if encoded == _NO_UUID:
        raise ValueError("no topic id")
    return UUID(bytes=encoded)


@lru_cache(_KEPT_VALUES)
def milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)
