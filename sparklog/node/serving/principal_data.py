"""The principal in an Envelope: Kafka's `DefaultPrincipalData`, version 0 (KIP-590).

Source: Kafka's DefaultKafkaPrincipalBuilder, which puts the version before the entity.
"""

from typing import Final

from kio.schema.default_principal_data.v0 import DefaultPrincipalData

from sparklog.node.acls.acl import Principal
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.guard import MalformedRequestError, decode_entity
from sparklog.protocol.errors import ErrorCode, KafkaError

_VERSION: Final = b"\0\0"


def encode_principal(principal: Principal) -> bytes:
    """Return a principal that has not logged in by a delegation token.

    >>> encode_principal(Principal("User", "ANONYMOUS"))
    b'\\x00\\x00\\x05User\\nANONYMOUS\\x00\\x00'
    """
    data = DefaultPrincipalData(type_=principal.type, name=principal.name, token_authenticated=False)
    return _VERSION + encode_to_bytes(data)


def decode_principal(data: bytes) -> Principal:
    """Return the principal in `data`.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    try:
        if not data.startswith(_VERSION):
            raise ValueError(f"version {data[: len(_VERSION)].hex()}")
        decoded, _ = decode_entity(DefaultPrincipalData, data, len(_VERSION))
    except (ValueError, MalformedRequestError) as error:
        raise KafkaError(
            ErrorCode.principal_deserialization_failure, f"the principal cannot be read: {error}"
        ) from error
    return Principal(decoded.type_, decoded.name)
