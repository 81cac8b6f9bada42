"""What lies in the coordinators' topics, and what members of groups say in bytes of their own.

The first byte says what it is; a key and a value are two parts.
"""

from sparklog.executor.coordinators.groups.machine.consumer.consumer_protocol import (
    MalformedConsumerProtocolError,
    read_assignment,
    read_subscription,
)
from sparklog.executor.coordinators.records.framing import (
    CONSUMER_OFFSETS_RECORDS,
    TRANSACTION_STATE_RECORDS,
    MalformedCoordinatorRecordError,
    UnknownRecordTypeError,
    UnknownRecordVersionError,
    encode_key,
    encode_value,
)
from sparklog.node.metadata_log.machine.control_records import read_control_record
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.builder import SimpleRecord
from sparklog.user.sink.machine.decisions import Decision, IndexEntry, UnreadableDecisionError
from sparklog.user.sink.machine.names import SinkId
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of, parts, text_of
from tests.fuzz.targets import Target

KINDS = (
    "consumer offsets",
    "transaction state",
    "subscription",
    "assignment",
    "decision",
    "index entry",
    "sink id",
    "control record",
)
_REFUSED = (MalformedCoordinatorRecordError, UnknownRecordTypeError, UnknownRecordVersionError)


def target() -> Target:
    return take


def take(data: bytes) -> None:
    kind, rest = kind_of(data, len(KINDS))
    try:
        match kind:
            case 0 | 1:
                _record(kind, rest)
            case 2:
                read_subscription(rest)
            case 3:
                read_assignment(rest)
            case 4:
                decision = Decision.decode(rest)
                expect(Decision.decode(decision.encode()) == decision, "a decision is read to another")
            case 5:
                entry = IndexEntry.decode(text_of(rest))
                expect(IndexEntry.decode(entry.encode()) == entry, "an entry is read to another")
            case 6:
                SinkId.parse(text_of(rest))
            case _:
                key, value = [*parts(rest, 2), b""][:2]
                read_control_record(SimpleRecord(key, value, offset=0))
    except (*_REFUSED, MalformedConsumerProtocolError, UnreadableDecisionError):
        pass
    except ValueError:
        if kind != 6:
            raise
    except KafkaError:
        if kind != 7:
            raise


def _record(kind: int, rest: bytes) -> None:
    types = (CONSUMER_OFFSETS_RECORDS, TRANSACTION_STATE_RECORDS)[kind]
    given = parts(rest, 2)
    key, value = types.decode(given[0], given[1] if len(given) > 1 else None)
    if value is None:
        return
    version = int.from_bytes(given[1][:2], "big")
    again = types.decode(encode_key(key), encode_value(value, version))
    expect(repr(again) == repr((key, value)), "a record is read to something else")
