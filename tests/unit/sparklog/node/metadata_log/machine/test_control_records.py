"""Control records of the metadata log: what is written is what is read, and damage is named."""

from uuid import UUID

import pytest
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord

from sparklog.node.metadata_log.machine.control_records import (
    control_record,
    kraft_version,
    leader_change,
    read_control_record,
    voter_set_of,
    voters_record,
)
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.records.builder import SimpleRecord

VOTERS = VoterSet.of(
    Voter(VoterKey(node_id, UUID(int=node_id + 200)), "127.0.0.1", 9000) for node_id in (2, 0)
)


@pytest.mark.parametrize(
    "entity",
    [
        leader_change(7, VOTERS.keys, [voter.key for voter in VOTERS][:1]),
        kraft_version(),
        voters_record(VOTERS),
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=1234),
        SnapshotFooterRecord(version=0),
    ],
    ids=lambda entity: type(entity).__name__,
)
def test_control_record_written_and_read_is_the_same(entity: object) -> None:
    """Voters and leaders are known from these records alone after a restart."""
    assert read_control_record(control_record(entity, 5)) == entity


def test_voters_record_names_the_set_it_was_made_of() -> None:
    """Keys, hosts and ports must survive: an error message names them years later."""
    assert voter_set_of(voters_record(VOTERS)) == VOTERS


def test_control_record_of_unknown_type_is_passed_over() -> None:
    """A log of a newer release must stay readable."""
    assert read_control_record(SimpleRecord(key=b"\0\0\0\x63", value=b"")) is None


@pytest.mark.parametrize("key, value", [(None, b""), (b"\0\0", b""), (b"\0\0\0\x02", None)])
def test_control_record_without_key_or_value_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    """Damage has a name instead of an arbitrary exception."""
    with pytest.raises(CorruptBatchError):
        read_control_record(SimpleRecord(key=key, value=value))
