"""Walks over serialized entities before kio's reader may see them (skeleton, being written)."""

from typing_extensions import Buffer
from typing import Any

from sparklog.errors import ErrorCode, KafkaError


class MalformedRequestError(KafkaError):
    """Bytes that are not the entity they should be."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


def check_entity(entity_type: type[Any], buffer: Buffer, position: int = 0) -> int:
    """Return the position just after the `entity_type` that starts at `position`.

    Raises:
        MalformedRequestError: a length is impossible for the bytes that remain, or a null stands where none may.
    """
    raise NotImplementedError


def decode_entity(entity_type: type[Any], buffer: Buffer, position: int = 0) -> tuple[Any, int]:
    """Check and read the `entity_type` at `position`; return it and the position after it.

    This is the only way from untrusted bytes to an entity. Unknown tagged fields are skipped (KIP-482).

    Raises:
        MalformedRequestError: the bytes are not such an entity.
    """
    raise NotImplementedError
