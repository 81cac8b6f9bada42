"""Control records of the metadata log and its snapshots.

Each lies in a control batch. Its key is the version of the key and the type, two big-endian int16; its value
is a kio entity of version 0, the only one that Kafka reads from a log. `LeaderChange` begins a leader epoch
(KIP-595), `KRaftVersion` and `Voters` define the voter set (KIP-853), a header and a footer enclose a
snapshot (KIP-630).
"""

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.schema.leader_change_message.v0.data import Voter as LeaderChangeVoter
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature, VotersRecord
from kio.schema.voters_record.v0.data import Voter as VotersRecordVoter

from sparklog.node.endpoints import CONTROLLER_LISTENER
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.guard import decode_entity
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.records.builder import SimpleRecord
from sparklog.protocol.types import BrokerId, TimestampMs

_KEY: Final = struct.Struct(">hh")
_KEY_VERSION: Final = 0
_KRAFT_VERSION: Final = 1
"""The level at which the log itself names the voters, with directory ids."""


class ControlRecordType(IntEnum):
    """The types that occur in the metadata log and its snapshots, with Kafka's names."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ENTITIES: Final[Mapping[ControlRecordType, type[Any]]] = MappingProxyType(
    {
        ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
        ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
        ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
        ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
        ControlRecordType.KRAFT_VOTERS: VotersRecord,
    }
)
_TYPES: Final = MappingProxyType({entity: control_type for control_type, entity in _ENTITIES.items()})


def control_record(entity: Any, timestamp_ms: TimestampMs) -> SimpleRecord:
    """Return the record of `entity`, one of the five types, for a control batch."""
    key = _KEY.pack(_KEY_VERSION, _TYPES[type(entity)])
    return SimpleRecord(key=key, value=encode_to_bytes(entity), timestamp_ms=timestamp_ms)


def read_control_record(record: SimpleRecord) -> Any | None:
    """Return the entity in a record of a control batch; None for an unknown type.

    Raises:
        CorruptBatchError: key or value is not a control record's.
        MalformedRequestError: a length inside the value is impossible.
    """
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size or value is None:
        raise CorruptBatchError(f"the control record at offset {record.offset} has no key or no value")
    number = _KEY.unpack_from(key)[1]
    if number not in _ENTITIES:
        return None
    entity, _ = decode_entity(_ENTITIES[ControlRecordType(number)], value)
    return entity


def leader_change(
    leader_id: BrokerId, voters: Iterable[VoterKey], granting: Iterable[VoterKey]
) -> LeaderChangeMessage:
    """Return the record that begins a leader epoch: the leader, the voters, and those that voted for it."""
    return LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=_leader_change_voters(voters),
        granting_voters=_leader_change_voters(granting),
    )


def _leader_change_voters(keys: Iterable[VoterKey]) -> tuple[LeaderChangeVoter, ...]:
    return tuple(LeaderChangeVoter(voter_id=key.node_id) for key in sorted(keys))


def kraft_version() -> KRaftVersionRecord:
    """Return the record after which the log itself names the voters."""
    return KRaftVersionRecord(version=0, k_raft_version=_KRAFT_VERSION)


def voters_record(voters: VoterSet) -> VotersRecord:
    """Return the record that puts a voter set into force."""
    return VotersRecord(
        version=0,
        voters=tuple(
            VotersRecordVoter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=(Endpoint(name=CONTROLLER_LISTENER, host=voter.host, port=voter.port),),
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=_KRAFT_VERSION, max_supported_version=_KRAFT_VERSION
                ),
            )
            for voter in voters
        ),
    )


def voter_set_of(record: VotersRecord) -> VoterSet:
    return VoterSet.of(
        Voter(
            VoterKey(voter.voter_id, voter.voter_directory_id),
            *next(((endpoint.host, endpoint.port) for endpoint in voter.endpoints), ("", 0)),
        )
        for voter in record.voters
    )
