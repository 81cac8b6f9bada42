"""Encoding of a metadata record in the value of a log record.

    frame version (unsigned varint, always 1)
    API key       (unsigned varint, the record type)
    version       (unsigned varint, of its schema)
    the record    (flexible encoding, to the end of the value)

Kafka's MetadataRecordSerde writes and reads the same. The CRC of the log's batches has been checked, so a bad
frame means a foreign or a newer writer and stops the replay. The bytes may come from a socket, so lengths are
checked before anything is allocated.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.node.metadata.schemas import RECORD_TYPES, MetadataRecord
from sparklog.protocol.codec.encoder import encode_to_bytes, encode_varint
from sparklog.protocol.codec.guard import MalformedRequestError, decode_entity
from sparklog.protocol.errors import ErrorCode, KafkaError

FRAME_VERSION: Final = 1
_MAX_VARINT_BYTES: Final = 5


class MetadataFrameError(KafkaError):
    """The value of a metadata log record is not a record that this version understands."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unsupported_version, message)


def encode_record(record: MetadataRecord) -> bytes:
    return _FRAME_HEADERS[record.__api_key__] + encode_to_bytes(record)


def decode_record(value: bytes | memoryview) -> MetadataRecord:
    """Return the record of a value of the metadata log.

    Raises:
        MetadataFrameError: the frame version, API key or schema version is unknown, or the bytes do not
            add up to one record.
    """
    if len(value) > 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        # The common case: three varints of one byte.
        api_key, version, position = value[1], value[2], 3
    else:
        frame_version, position = _decode_unsigned_varint(value, 0)
        if frame_version != FRAME_VERSION:
            raise MetadataFrameError(
                f"metadata record with frame version {frame_version}, expected {FRAME_VERSION}"
            )
        api_key, position = _decode_unsigned_varint(value, position)
        version, position = _decode_unsigned_varint(value, position)
    record_type = RECORD_TYPES.get(api_key)
    if record_type is None:
        raise MetadataFrameError(f"metadata record with unknown API key {api_key}")
    if version != record_type.__version__:
        raise MetadataFrameError(
            f"{record_type.__name__} of version {version}, expected {record_type.__version__}"
        )
    record: MetadataRecord
    try:
        record, end = decode_entity(record_type, value, position)
    except MalformedRequestError as error:
        raise MetadataFrameError(f"{record_type.__name__} cannot be read: {error.message}") from error
    if end != len(value):
        raise MetadataFrameError(f"{len(value) - end} bytes follow the {record_type.__name__}")
    return record


def _decode_unsigned_varint(value: bytes | memoryview, position: int) -> tuple[int, int]:
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(value):
            raise MetadataFrameError(f"metadata record of {len(value)} bytes ends in its frame header")
        byte = value[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    raise MetadataFrameError("metadata record with an overlong varint in its frame header")


_FRAME_HEADERS: Final[Mapping[int, bytes]] = {
    api_key: b"".join(map(encode_varint, (FRAME_VERSION, api_key, record_type.__version__)))
    for api_key, record_type in RECORD_TYPES.items()
}
"""The bytes before each record type's entity."""
