"""Metadata records in bytes. The golden bytes were written by Kafka 4.3.1's own MetadataRecordSerde."""

import contextlib
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.metadata.framing import MetadataFrameError, decode_record, encode_record
from sparklog.node.metadata.schemas import (
    RECORD_TYPES,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

TOPIC_ID: Final = UUID("01234567-89ab-cdef-8899-aabbccddeeff")
DIRECTORY: Final = UUID(int=77)

QUOTA_ENTITY: Final = (
    QuotaEntityData(entity_type="client-id", entity_name="loader"),
    QuotaEntityData(entity_type="user", entity_name=None),
)

GOLDEN: Final = [
    pytest.param(
        AccessControlEntryRecord(
            id=TOPIC_ID,
            resource_type=2,
            resource_name="flights",
            pattern_type=3,
            principal="User:ann",
            host="*",
            operation=4,
            permission_type=3,
        ),
        "0112000123456789abcdef8899aabbccddeeff0208666c69676874730309557365723a616e6e022a040300",
        id="acl",
    ),
    pytest.param(
        RemoveAccessControlEntryRecord(id=TOPIC_ID),
        "0113000123456789abcdef8899aabbccddeeff00",
        id="acl_removed",
    ),
    pytest.param(
        UserScramCredentialRecord(
            name="ann", mechanism=1, salt=b"salt", stored_key=b"st", server_key=b"sv", iterations=4096
        ),
        "010b0004616e6e010573616c7403737403737600001000" + "00",
        id="scram_credential",
    ),
    pytest.param(
        RemoveUserScramCredentialRecord(name="ann", mechanism=2),
        "01160004616e6e0200",
        id="scram_credential_removed",
    ),
    pytest.param(
        ClientQuotaRecord(entity=QUOTA_ENTITY, key="producer_byte_rate", value=1048576.5),
        "010e00030a636c69656e742d6964076c6f6164657200057573657200001370726f64756365725f627974655f"
        "7261746541300000800000000000",
        id="client_quota",
    ),
    pytest.param(
        ClientQuotaRecord(entity=QUOTA_ENTITY, key="producer_byte_rate", remove=True),
        "010e00030a636c69656e742d6964076c6f6164657200057573657200001370726f64756365725f627974655f"
        "7261746500000000000000000100",
        id="client_quota_removed",
    ),
    pytest.param(
        RegisterBrokerRecord(
            broker_id=3,
            incarnation_id=TOPIC_ID,
            broker_epoch=12,
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="10.0.0.7", port=65000, security_protocol=0),),
            features=(
                BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),
            ),
            rack="rack-1",
            log_dirs=(DIRECTORY,),
        ),
        "01000400000003000123456789abcdef8899aabbccddeeff000000000000000c020a504c41494e5445585409"
        "31302e302e302e37fde800000002116d657461646174612e76657273696f6e0007001e00077261636b2d3101"
        "00010011020000000000000000000000000000004d",
        id="register",
    ),
    pytest.param(
        RegisterBrokerRecord(
            broker_id=3,
            incarnation_id=TOPIC_ID,
            broker_epoch=12,
            end_points=(),
            rack=None,
            fenced=False,
            in_controlled_shutdown=True,
            cordoned_log_dirs=(DIRECTORY,),
        ),
        "01000400000003000123456789abcdef8899aabbccddeeff000000000000000c010100000101011102000000"
        "0000000000000000000000004d",
        id="register_cordoned",
    ),
    pytest.param(
        UnregisterBrokerRecord(broker_id=3, broker_epoch=12),
        "01010000000003000000000000000c00",
        id="unregister",
    ),
    pytest.param(
        TopicRecord(name="flights", topic_id=TOPIC_ID),
        "01020008666c69676874730123456789abcdef8899aabbccddeeff00",
        id="topic",
    ),
    pytest.param(
        PartitionRecord(
            partition_id=2,
            topic_id=TOPIC_ID,
            replicas=(1, 2, 3),
            isr=(1, 2),
            leader=1,
            leader_epoch=4,
            partition_epoch=9,
            directories=(DIRECTORY, None, DIRECTORY),
        ),
        "010302000000020123456789abcdef8899aabbccddeeff040000000100000002000000030300000001000000"
        "020101000000010000000400000009040000000000000000000000000000004d000000000000000000000000"
        "000000000000000000000000000000000000004d00",
        id="partition",
    ),
    pytest.param(
        PartitionRecord(
            partition_id=2,
            topic_id=TOPIC_ID,
            replicas=(1, 2, 3),
            isr=(1,),
            removing_replicas=(3,),
            adding_replicas=(2,),
            leader=-1,
            leader_recovery_state=1,
            leader_epoch=4,
            partition_epoch=9,
            directories=(DIRECTORY, DIRECTORY, DIRECTORY),
            eligible_leader_replicas=(2,),
            last_known_elr=(3,),
        ),
        "010302000000020123456789abcdef8899aabbccddeeff040000000100000002000000030200000001020000"
        "00030200000002ffffffff0000000400000009040000000000000000000000000000004d0000000000000000"
        "000000000000004d0000000000000000000000000000004d030001010105020000000202050200000003",
        id="partition_elr",
    ),
    pytest.param(
        ConfigRecord(resource_type=2, resource_name="flights", name="retention.ms", value="60000"),
        "0104000208666c69676874730d726574656e74696f6e2e6d7306363030303000",
        id="config",
    ),
    pytest.param(
        ConfigRecord(resource_type=2, resource_name="flights", name="retention.ms", value=None),
        "0104000208666c69676874730d726574656e74696f6e2e6d730000",
        id="config_removed",
    ),
    pytest.param(
        PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, isr=(2,), leader=2),
        "010502000000020123456789abcdef8899aabbccddeeff0200050200000002010400000002",
        id="partition_change",
    ),
    pytest.param(
        PartitionChangeRecord(
            partition_id=2,
            topic_id=TOPIC_ID,
            isr=(),
            leader=-1,
            replicas=(4, 5),
            removing_replicas=(),
            adding_replicas=(5,),
            leader_recovery_state=0,
            directories=(DIRECTORY, DIRECTORY),
            eligible_leader_replicas=(4,),
            last_known_elr=(),
        ),
        "010502000000020123456789abcdef8899aabbccddeeff090001010104ffffffff0209030000000400000005"
        "03010104050200000005050100060502000000040701010821030000000000000000000000000000004d0000"
        "000000000000000000000000004d",
        id="partition_change_all",
    ),
    pytest.param(
        RemoveTopicRecord(topic_id=TOPIC_ID),
        "0109000123456789abcdef8899aabbccddeeff00",
        id="remove_topic",
    ),
    pytest.param(
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        "010c00116d657461646174612e76657273696f6e001e00",
        id="feature",
    ),
    pytest.param(
        ProducerIdsRecord(broker_id=3, broker_epoch=12, next_producer_id=2000),
        "010f0000000003000000000000000c00000000000007d000",
        id="producer_ids",
    ),
    pytest.param(
        BrokerRegistrationChangeRecord(
            broker_id=3,
            broker_epoch=12,
            fenced=-1,
            in_controlled_shutdown=1,
            log_dirs=(DIRECTORY,),
            cordoned_log_dirs=(),
        ),
        "01110300000003000000000000000c040001ff0101010211020000000000000000000000000000004d030101",
        id="registration_change",
    ),
    pytest.param(
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=12),
        "01110300000003000000000000000c00",
        id="registration_change_nothing",
    ),
]


@pytest.mark.parametrize(("record", "frame"), GOLDEN)
def test_encode_record_of_each_type_gives_kafkas_bytes(record: MetadataRecord, frame: str) -> None:
    """Kafka's tools must be able to read the metadata log."""
    assert encode_record(record).hex() == frame


@pytest.mark.parametrize(("record", "frame"), GOLDEN)
def test_decode_record_of_kafkas_bytes_gives_the_record(record: MetadataRecord, frame: str) -> None:
    """What a broker replays is what the controller meant."""
    assert decode_record(bytes.fromhex(frame)) == record


def test_golden_records_cover_every_type() -> None:
    """A record type without golden bytes could drift from Kafka's unnoticed."""
    assert {type(case.values[0]) for case in GOLDEN} == set(RECORD_TYPES.values())


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ("", "ends in its frame header"),
        ("01", "ends in its frame header"),
        ("00140000", "frame version 0"),
        ("02140000", "frame version 2"),
        ("01630000", "unknown API key 99"),
        ("01020500", "TopicRecord of version 5"),
        ("01110300000003000000000000000c0000", "1 bytes follow"),
        ("ffffffffffff", "overlong varint"),
        ("0102000866", "TopicRecord cannot be read"),
        ("0103020000000200000000000000000000000000000000ffffffff0f", "PartitionRecord cannot be read"),
    ],
)
def test_decode_record_of_a_bad_frame_names_what_is_wrong(frame: str, said: str) -> None:
    """A foreign or newer record stops the replay with a reason; a huge length allocates nothing."""
    with pytest.raises(MetadataFrameError, match=said):
        decode_record(bytes.fromhex(frame))


@given(st.sampled_from([bytes.fromhex(str(case.values[1])) for case in GOLDEN]), st.data())
def test_decode_record_of_damaged_bytes_never_fails_otherwise(frame: bytes, data: st.DataObject) -> None:
    """Whatever the bytes are, the answer is a record or a MetadataFrameError."""
    position = data.draw(st.integers(0, len(frame) - 1))
    damaged = frame[:position] + data.draw(st.binary(max_size=4)) + frame[position + 1 :]
    with contextlib.suppress(MetadataFrameError):
        assert isinstance(decode_record(damaged), MetadataRecord)


@given(
    replicas=st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    isr=st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    leader=st.integers(-2, 2**31 - 1),
    elr=st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
)
def test_partition_change_round_trip_keeps_null_and_empty_apart(
    replicas: tuple[int, ...], isr: tuple[int, ...] | None, leader: int, elr: tuple[int, ...] | None
) -> None:
    """An empty ISR is a change, a missing one is none."""
    record = PartitionChangeRecord(
        partition_id=1,
        topic_id=TOPIC_ID,
        replicas=replicas,
        isr=isr,
        leader=leader,
        eligible_leader_replicas=elr,
    )
    assert decode_record(encode_record(record)) == record
