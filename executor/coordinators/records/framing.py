"""Encoding of a coordinator's record in the key and the value of a log record.

    key     int16 record type, then the key's entity
    value   int16 version, then the value's entity at that version; a null value is a tombstone

Unknown records are of two kinds, of different weight (Kafka's CoordinatorLoaderImpl, TransactionLog): a
record type that an aborted upgrade left behind is skipped on loading; a value with a newer version than this
one knows means that another version of the software is in charge.

Source: Kafka's CoordinatorRecordSerde.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from types import ModuleType
from typing import Any, Final

from sparklog.executor.coordinators.records import consumer_offsets, transaction_state
from sparklog.executor.coordinators.records.entities import (
    CoordinatorKey,
    CoordinatorValue,
    entity_of_version,
    to_newest,
)
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.guard import MalformedRequestError, decode_entity
from sparklog.protocol.errors import ErrorCode, KafkaError

_INT16: Final = Struct(">h")


class MalformedCoordinatorRecordError(KafkaError):
    """A record of an internal topic has no coordinator's key or value."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class UnknownRecordTypeError(KafkaError):
    """This version does not know the record's type; it may be skipped."""

    def __init__(self, record_type: int) -> None:
        super().__init__(ErrorCode.unsupported_version, f"coordinator record of unknown type {record_type}")


class UnknownRecordVersionError(KafkaError):
    """This version of the software cannot read the version of the record's value."""

    def __init__(self, value_type: str, version: int) -> None:
        super().__init__(ErrorCode.unsupported_version, f"{value_type} of unknown version {version}")


def encode_key(key: CoordinatorKey) -> bytes:
    return _INT16.pack(key.__api_key__) + encode_to_bytes(key)


def encode_value(value: CoordinatorValue, version: int | None = None) -> bytes:
    """Return the value's bytes at `version`, by default the one in which Kafka 4.3 writes it.

    Fields that the version lacks must have their defaults.
    """
    written = value.written_version if version is None else version
    return _INT16.pack(written) + encode_to_bytes(value, entity_of_version(type(value), written))


@dataclass(frozen=True, slots=True)
class _RecordType:
    key_type: type[CoordinatorKey]
    value_type: type[CoordinatorValue]
    to_newest: Callable[[Any], Any]


class RecordTypes:
    """The record types of a module: a key and a value with the same `__api_key__`."""

    def __init__(self, module: ModuleType) -> None:
        classes = [each for each in vars(module).values() if hasattr(each, "__api_key__")]
        values = {each.__api_key__: each for each in classes if issubclass(each, CoordinatorValue)}
        self._types: Mapping[int, _RecordType] = {
            each.__api_key__: _RecordType(each, values[each.__api_key__], to_newest(values[each.__api_key__]))
            for each in classes
            if issubclass(each, CoordinatorKey)
        }

    def decode(
        self, key: bytes | memoryview | None, value: bytes | memoryview | None
    ) -> tuple[Any, Any | None]:
        """Return the key and the value of a log record as entities; the value of a tombstone is None.

        Raises:
            UnknownRecordTypeError, UnknownRecordVersionError: another version of the software wrote it.
            MalformedCoordinatorRecordError: the bytes are not such a record.
        """
        if key is None or len(key) < 2:
            raise MalformedCoordinatorRecordError("coordinator record without a record type in its key")
        type_id = _INT16.unpack_from(key)[0]
        record_type = self._types.get(type_id)
        if record_type is None:
            raise UnknownRecordTypeError(type_id)
        key_entity = _decode(record_type.key_type, key)
        if value is None:
            return key_entity, None
        if len(value) < 2:
            raise MalformedCoordinatorRecordError("coordinator record without a version in its value")
        version = _INT16.unpack_from(value)[0]
        value_type = record_type.value_type
        if not 0 <= version <= value_type.__highest_version__:
            raise UnknownRecordVersionError(value_type.__name__, version)
        return key_entity, record_type.to_newest(_decode(entity_of_version(value_type, version), value))


def _decode(entity_type: type[Any], data: bytes | memoryview) -> Any:
    try:
        entity, _ = decode_entity(entity_type, data, 2)
    except MalformedRequestError as error:
        raise MalformedCoordinatorRecordError(
            f"{entity_type.__name__} of a coordinator's record cannot be read: {error.message}"
        ) from error
    return entity


CONSUMER_OFFSETS_RECORDS: Final = RecordTypes(consumer_offsets)
TRANSACTION_STATE_RECORDS: Final = RecordTypes(transaction_state)
